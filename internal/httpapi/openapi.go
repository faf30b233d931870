package httpapi

import (
	_ "embed"
	"net/http"
)

// AdminPath begins the paths of AdminService's calls; the name of a call follows.
const AdminPath = "/understudy.v1.AdminService/"

// document describes the calls below AdminPath. make generate writes it.
//
//go:embed openapi.swagger.json
var document []byte

func openAPI(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(document)
}
