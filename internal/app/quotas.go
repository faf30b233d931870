package app

import (
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/understudy-store/understudy/internal/config"
	"github.com/understudy-store/understudy/internal/service"
	"github.com/understudy-store/understudy/metadata"
)

// initialQuotas reads the quotas of a policy file, if one is given.
func initialQuotas(c config.Tenants) ([]metadata.TenantQuota, error) {
	if !c.Enabled || c.Connector != config.QuotasInFile || c.ConnectorURI == "" {
		return nil, nil
	}
	b, err := os.ReadFile(c.ConnectorURI)
	if err == nil {
		var quotas []metadata.TenantQuota
		if quotas, err = parseQuotas(b); err == nil {
			return quotas, nil
		}
	}
	return nil, fmt.Errorf("tenant_quota_connector_uri %s: %w", c.ConnectorURI, err)
}

// parseQuotas reads Mooncake's format: a version, and tenants with a name and a quota.
func parseQuotas(b []byte) ([]metadata.TenantQuota, error) {
	var policy struct {
		Version int
		Tenants []struct{ Name, Quota string }
	}
	if err := yaml.Unmarshal(b, &policy); err != nil {
		return nil, err
	}
	if policy.Version != 1 {
		return nil, fmt.Errorf("version is %d, want 1", policy.Version)
	}
	if n := len(policy.Tenants); n > metadata.MaxQuotas {
		return nil, fmt.Errorf("there are %d tenants, at most %d are possible", n, metadata.MaxQuotas)
	}
	seen, list := make(map[string]bool), make([]metadata.TenantQuota, 0, len(policy.Tenants))
	for _, t := range policy.Tenants {
		if err := service.CheckTenant("", t.Name); err != nil || t.Name == "" || seen[t.Name] {
			return nil, fmt.Errorf("tenant %q has no name, one that is not possible, or that of another", t.Name)
		}
		seen[t.Name] = true
		bytes, err := quotaBytes(t.Quota)
		if err != nil {
			return nil, fmt.Errorf("tenant %s: %w", t.Name, err)
		}
		list = append(list, metadata.TenantQuota{Tenant: t.Name, Requested: bytes})
	}
	return list, nil
}

// quotaBytes reads a whole number with an optional unit; without one it counts bytes.
func quotaBytes(text string) (uint64, error) {
	digits := strings.TrimRight(text, "KMGTB")
	unit, known := map[string]uint64{"": 1, "B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}[text[len(digits):]]
	n, err := strconv.ParseUint(digits, 10, 64)
	if err != nil || !known || n == 0 || n > math.MaxInt64/unit {
		return 0, errors.New("quota " + strconv.Quote(text) + " is no whole number from 1 to 2^63-1 bytes, with B, KB, MB, GB or TB")
	}
	return n * unit, nil
}
