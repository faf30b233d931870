package httpapi

import (
	"errors"
	"net/http"
	"time"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/service"
)

// removeAll removes all objects, also leased ones with force=true or 1. Multi-tenancy
// is off: any tenant_id selects the default tenant.
func removeAll(w http.ResponseWriter, r *http.Request, m *service.Master) error {
	force, err := param(r, "force")
	if err != nil {
		return err
	}
	of, err := param(r, "tenant_id")
	if err != nil {
		return err
	}
	if of != "" {
		of = tenant
	}
	// A large cache takes longer than other answers may.
	if err := http.NewResponseController(w).SetWriteDeadline(time.Time{}); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return nil //nolint:nilerr // the connection is gone
	}
	n, err := m.RemoveAll(r.Context(), service.RemoveRequest{Tenant: of, Force: force == "true" || force == "1"})
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, struct {
		Success bool `json:"success"`
		Removed int  `json:"removed_count"`
	}{true, n})
	return nil
}

// tenantQuotas answers as upstream does without multi-tenancy.
func tenantQuotas(w http.ResponseWriter, r *http.Request, _ *service.Master) error {
	of, err := param(r, "tenant_id")
	if err != nil {
		return err
	}
	if of == "" && r.Method != http.MethodGet && r.Method != http.MethodHead {
		return errs.New(errs.InvalidParams, "", "Missing or invalid tenant_id")
	}
	kind := errs.NotLeader // the number that means UNAVAILABLE_IN_CURRENT_MODE
	writeJSON(w, http.StatusConflict, failure{Number: kind.Number(), Message: kind.String()})
	return nil
}
