package httpapi

import (
	"encoding/json"
	"io"
	"net/http"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/service"
	"github.com/understudy-store/understudy/metadata"
)

// A quota is a tenant with its quota, in upstream's names.
type quota struct {
	Tenant          string `json:"tenant_id"`
	Requested       uint64 `json:"requested_quota_bytes"`
	Effective       uint64 `json:"effective_quota_bytes"`
	Charged         uint64 `json:"charged_bytes"`
	AdmissionClosed bool   `json:"admission_closed"`
	Over            bool   `json:"over_quota"`
	Explicit        bool   `json:"has_explicit_policy"`
}

func quotaOf(t metadata.TenantQuota) quota {
	return quota{t.Tenant, t.Requested, t.Effective, t.Charged, !t.Registered(), t.Over(), t.Registered()}
}

// tenantsOff answers, as upstream does, while multi-tenancy is off.
func tenantsOff(w http.ResponseWriter, m *service.Master) bool {
	kind := errs.NotLeader // the number that means UNAVAILABLE_IN_CURRENT_MODE
	if !m.Tenants {
		writeJSON(w, http.StatusConflict, failure{Number: kind.Number(), Message: kind.String()})
	}
	return !bool(m.Tenants)
}

// getQuotas shows one tenant, or all that have a quota or memory.
func (a API) getQuotas(w http.ResponseWriter, r *http.Request, m *service.Master) error {
	of, err := param(r, "tenant_id")
	switch {
	case err != nil:
		return err
	case of != "" && service.CheckTenant("", of) != nil:
		return errs.New(errs.InvalidParams, "", "Invalid tenant_id")
	case tenantsOff(w, m):
		return nil
	case of == "":
		return a.allQuotas(w, r, m)
	}
	t, known := m.Store.Quota(of)
	if err := m.Fence(r.Context()); err != nil {
		return err
	}
	if !known {
		return errs.ObjectNotFound
	}
	writeData(w, quotaOf(t))
	return nil
}

func (a API) allQuotas(w http.ResponseWriter, r *http.Request, m *service.Master) error {
	end, err := a.list(r, m.Store.QuotaCount())
	if err != nil {
		return err
	}
	defer end()
	list, err := m.Quotas(r.Context())
	if err != nil {
		return err
	}
	return writeList(w, `{"success":true,"data":[`, list, func(t *metadata.TenantQuota) any { return quotaOf(*t) })
}

// named returns the tenant that a change of a quota is about.
func named(r *http.Request) (string, error) {
	of, err := param(r, "tenant_id")
	if err == nil && (of == "" || service.CheckTenant("", of) != nil) {
		err = errs.New(errs.InvalidParams, "", "Missing or invalid tenant_id")
	}
	return of, err
}

// maxQuotaBody bounds the body of a PUT, in bytes.
const maxQuotaBody = 4096

func putQuota(w http.ResponseWriter, r *http.Request, m *service.Master) error {
	of, err := named(r)
	if err != nil {
		return err
	}
	var body struct {
		Bytes uint64 `json:"requested_quota_bytes"`
	}
	if err := json.NewDecoder(io.LimitReader(r.Body, maxQuotaBody)).Decode(&body); err != nil {
		return errs.New(errs.InvalidParams, "", "Invalid JSON body: %v", err)
	}
	if body.Bytes == 0 || body.Bytes > metadata.MaxQuota {
		return errs.New(errs.InvalidParams, "", "Tenant quota must be in [1, 2^63 - 1] bytes")
	}
	if tenantsOff(w, m) {
		return nil
	}
	if err := m.SetQuota(r.Context(), of, body.Bytes); err != nil {
		return err
	}
	t, _ := m.Store.Quota(of)
	writeData(w, quotaOf(t))
	return nil
}

// deleteQuota makes a tenant without objects unknown.
func deleteQuota(w http.ResponseWriter, r *http.Request, m *service.Master) error {
	of, err := named(r)
	if err != nil || tenantsOff(w, m) {
		return err
	}
	if err := m.SetQuota(r.Context(), of, 0); err != nil {
		return err
	}
	writeData(w, nil)
	return nil
}
