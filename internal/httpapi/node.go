package httpapi

import (
	"cmp"
	"net/http"
)

func (a API) summary(w http.ResponseWriter, _ *http.Request) {
	writeText(w, http.StatusOK, a.Summary()+"\n")
}

// health reports that this process works, whatever its role: a standby is as
// healthy as a primary.
func (a API) health(w http.ResponseWriter, _ *http.Request) {
	writeText(w, http.StatusOK, "OK")
}

// ready reports whether clients may call this node: whether it serves. With
// role=standby it reports whether the node has a complete state, so that it serves
// or could take over.
func (a API) ready(w http.ResponseWriter, r *http.Request) {
	switch role := r.URL.Query().Get("role"); role {
	case "", "primary":
		if !a.Gate.Serves() {
			writeText(w, http.StatusServiceUnavailable, "not serving: "+a.Node().obstacle()+"\n")
			return
		}
	case "standby":
		if s := a.Node(); !s.Promotable {
			writeText(w, http.StatusServiceUnavailable, "not promotable: "+s.Why+"\n")
			return
		}
	default:
		writeText(w, http.StatusBadRequest, "role must be primary or standby\n")
		return
	}
	writeText(w, http.StatusOK, "OK")
}

func (a API) history(w http.ResponseWriter, r *http.Request) {
	terms, err := a.History(r.Context())
	if err != nil {
		a.fail(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, terms)
}

// obstacle says why this node does not serve, and what to do.
func (s Node) obstacle() string {
	text := "this node is " + s.Role
	if why := cmp.Or(s.Obstacle, s.Why); why != "" {
		text += ": " + why
	}
	if s.Help != "" {
		text += "\nwhat to do: " + s.Help
	}
	return text
}

func (a API) role(w http.ResponseWriter, _ *http.Request) {
	s := a.Node()
	s.Serving = a.Gate.Serves()
	writeJSON(w, http.StatusOK, s)
}
