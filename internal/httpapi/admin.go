package httpapi

import (
	"errors"
	"net/http"
	"time"

	"github.com/understudy-store/understudy/internal/service"
)

// removeAll removes all objects of a tenant, or of all, also leased ones with
// force=true or 1.
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
		of = m.Tenants.Of(of)
	}
	// A large cache takes longer than other answers may.
	if err := http.NewResponseController(w).SetWriteDeadline(time.Time{}); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return nil //nolint:nilerr // the connection is gone
	}
	n, err := m.RemoveAll(r.Context(), service.RemoveRequest{Tenant: of, Force: force == "true" || force == "1", From: "http " + r.RemoteAddr})
	if ordered, ok := w.(*orderWriter); ok {
		ordered.removed, ordered.changed = &n.Removed, n.Changed // also by one that failed half-way
	}
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, struct {
		Success bool `json:"success"`
		Removed int  `json:"removed_count"`
	}{true, n.Removed})
	return nil
}
