package deploy_test

import (
	"debug/elf"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"

	"github.com/understudy-store/understudy/internal/config"
)

const chart = "helm/understudy"

// render returns the objects of the chart with some values besides its own, by the name of
// their template, as helm template prints them.
func render(t *testing.T, values string) (map[string]string, error) {
	t.Helper()
	c, err := loader.Load(chart)
	if err != nil {
		t.Fatal(err)
	}
	var over map[string]any
	decode(t, values, &over)
	data, err := chartutil.ToRenderValues(c, over, chartutil.ReleaseOptions{Name: "kv", Namespace: "cache"}, nil)
	if err != nil {
		return nil, err
	}
	files, err := engine.Engine{Strict: true}.Render(c, data)
	objects := make(map[string]string)
	for path, text := range files {
		name, isYAML := strings.CutSuffix(filepath.Base(path), ".yaml")
		if isYAML && strings.TrimSpace(text) == "" {
			continue // it is turned off
		}
		objects[name] = text
	}
	return objects, err
}

// decode reads YAML; fields that the result does not have are errors.
func decode(t *testing.T, text string, into any) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(text), into); err != nil {
		t.Fatalf("YAML: got error %v, want fields of %T only:\n%s", err, into, text)
	}
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

const (
	fullValues = `
etcd: {endpoints: ["e1:2379", "e2:2379"]}
settings: {default_kv_lease_ttl: 5s, eviction_ratio: 0.1}
serviceMonitor: {enabled: true, labels: {release: prometheus}}
storage: {className: fast}
requireSeparateHosts: true
imagePullSecrets: [{name: pull}]
podAnnotations: {a: b}
nodeSelector: {disk: ssd}
tolerations: [{key: cache, operator: Exists}]
`
	secureValues = `
etcd: {endpoints: ["e1:2379", "e2:2379"], tls: {enabled: true, secret: etcd-tls}, user: understudy, passwordSecret: etcd-password}
tls: {secret: kv-tls}
roles: {enabled: true, tokensSecret: kv-tokens}
serviceMonitor: {enabled: true}
networkPolicy:
  enabled: true
  clients: [{podSelector: {matchLabels: {app: vllm}}}]
  http: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: monitoring}}}]
extraVolumes: [{name: extra, emptyDir: {}}]
extraVolumeMounts: [{name: extra, mountPath: /extra}]
extraEnv: [{name: GOMEMLIMIT, value: 3GiB}]
`
)

func TestChartIsOfKubernetesTypes(t *testing.T) {
	for _, values := range []string{"etcd: {endpoints: [e1:2379]}", fullValues, secureValues} {
		objects, err := render(t, values)
		if err != nil {
			t.Fatal(err)
		}
		var set appsv1.StatefulSet
		decode(t, objects["statefulset"], &set)
		decode(t, objects["service"], new(corev1.Service))
		decode(t, objects["configmap"], new(corev1.ConfigMap))
		decode(t, objects["poddisruptionbudget"], new(policyv1.PodDisruptionBudget))
		for name, switchedOn := range map[string]string{"servicemonitor": "serviceMonitor", "networkpolicy": "networkPolicy"} {
			if want := strings.Contains(values, switchedOn); (objects[name] != "") != want {
				t.Errorf("got %s %q, want one: %v", name, objects[name], want)
			}
		}
		node := set.Spec.Template.Spec.Containers[0]
		for name, probe := range map[string]*corev1.Probe{"/health": node.LivenessProbe, "/readyz?role=standby": node.ReadinessProbe} {
			if probe.HTTPGet.Path != name {
				t.Errorf("a probe asks %s, want %s", probe.HTTPGet.Path, name)
			}
		}
		for label, value := range set.Spec.Selector.MatchLabels {
			if set.Spec.Template.Labels[label] != value {
				t.Errorf("the StatefulSet's pods: got %s=%q, want %q, which it selects", label, set.Spec.Template.Labels[label], value)
			}
		}
		for _, m := range node.VolumeMounts {
			is := func(v corev1.Volume) bool { return v.Name == m.Name }
			if m.Name != "data" && !slices.ContainsFunc(set.Spec.Template.Spec.Volumes, is) {
				t.Errorf("mount %s: got no volume of that name, want one", m.Name)
			}
		}
	}
	if _, err := render(t, ""); err == nil || !strings.Contains(err.Error(), "etcd.endpoints is empty") {
		t.Errorf("got %v without etcd, want that it is needed", err)
	}
}

// With certificates all that asks a node over HTTP does so over TLS, unless clients still
// change over to it.
func TestChartWithTLS(t *testing.T) {
	changing := strings.Replace(secureValues, "tls: {secret: kv-tls}", "tls: {secret: kv-tls, required: false}", 1)
	for values, scheme := range map[string]string{fullValues: "http", secureValues: "https", changing: "http"} {
		objects, err := render(t, values)
		if err != nil {
			t.Fatal(err)
		}
		var set appsv1.StatefulSet
		decode(t, objects["statefulset"], &set)
		node := set.Spec.Template.Spec.Containers[0]
		for _, probe := range []*corev1.Probe{node.LivenessProbe, node.ReadinessProbe, node.StartupProbe} {
			if got := strings.ToLower(string(probe.HTTPGet.Scheme)); got != scheme {
				t.Errorf("%s is asked over %s, want %s", probe.HTTPGet.Path, got, scheme)
			}
		}
		var monitor serviceMonitor
		decode(t, objects["servicemonitor"], &monitor)
		if e := monitor.Spec.Endpoints[0]; e.Scheme != scheme || (e.TLSConfig != nil) != (scheme == "https") {
			t.Errorf("Prometheus asks over %s with %+v, want %s", e.Scheme, e.TLSConfig, scheme)
		}
	}
	objects, err := render(t, secureValues)
	if err != nil {
		t.Fatal(err)
	}
	var set appsv1.StatefulSet
	decode(t, objects["statefulset"], &set)
	secrets := make(map[string]string)
	for _, v := range set.Spec.Template.Spec.Volumes {
		if v.Secret != nil {
			secrets[v.Name] = v.Secret.SecretName
		}
	}
	if want := map[string]string{"tls": "kv-tls", "tokens": "kv-tokens", "etcd": "etcd-tls", "etcd-password": "etcd-password"}; !maps.Equal(secrets, want) {
		t.Errorf("got the secrets %v, want %v", secrets, want)
	}
	var policy networkingv1.NetworkPolicy
	decode(t, objects["networkpolicy"], &policy)
	if rules := policy.Spec.Ingress; len(rules) != 3 || rules[1].Ports[0].Port.StrVal != "grpc" || rules[2].Ports[0].Port.StrVal != "http" || rules[1].From[0].PodSelector.MatchLabels["app"] != "vllm" {
		t.Errorf("got the rules %+v; want nodes, clients at gRPC and others at HTTP", rules)
	}
}

// A serviceMonitor is one of Prometheus' operator, as far as the chart has fields.
type serviceMonitor struct {
	APIVersion, Kind string
	Metadata         struct {
		Name   string
		Labels map[string]string
	}
	Spec struct {
		JobLabel  string
		Selector  struct{ MatchLabels map[string]string }
		Endpoints []struct {
			Port, Path, Interval, Scheme string
			TLSConfig                    *struct {
				ServerName string
				CA         struct{ Secret struct{ Name, Key string } }
			}
		}
	}
}

// Settings in files and in the environment are those of a node, and accepted.
func TestSettingsAreAccepted(t *testing.T) {
	for _, values := range []string{fullValues, secureValues} {
		objects, err := render(t, values)
		if err != nil {
			t.Fatal(err)
		}
		var m corev1.ConfigMap
		decode(t, objects["configmap"], &m)
		accepted(t, m.Data["node.yaml"], "UNDERSTUDY_NODE_ID=kv-0", "UNDERSTUDY_ADVERTISE_ADDRESS=kv-0.kv.cache.svc")
	}
	accepted(t, readFile(t, "config/node.yaml"))
	var compose struct {
		Services map[string]struct{ Environment map[string]string }
	}
	if err := yaml.Unmarshal([]byte(readFile(t, "compose/compose.yaml")), &compose); err != nil {
		t.Fatal(err)
	}
	nodes := 0
	for name, s := range compose.Services {
		if strings.HasPrefix(name, "node-") {
			nodes++
			var env []string
			for variable, value := range s.Environment {
				env = append(env, variable+"="+value)
			}
			accepted(t, "{}", env...)
		}
	}
	if nodes != 3 {
		t.Errorf("compose.yaml has %d nodes, want 3", nodes)
	}
}

// accepted loads a file of settings and an environment as a node does.
func accepted(t *testing.T, file string, env ...string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "node.yaml")
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	flags := pflag.NewFlagSet("master", pflag.ContinueOnError)
	config.BindFlags(flags)
	if err := flags.Parse([]string{"--config_path=" + path}); err != nil {
		t.Fatal(err)
	}
	c, warnings, err := config.Load(config.Primary, flags, env)
	if err != nil || len(warnings) > 0 {
		t.Fatalf("settings: got error %v and warnings %v, want neither:\n%s%v", err, warnings, file, env)
	}
	if !c.HA.Enabled || len(c.HA.EtcdEndpoints) < 2 {
		t.Errorf("got etcd %v, want several members", c.HA.EtcdEndpoints)
	}
}

// The image has no C library: what its build command builds needs none, and no loader.
func TestProgramsOfTheImageAreStatic(t *testing.T) {
	_, line, found := strings.Cut(readFile(t, "Containerfile"), "\nRUN CGO_ENABLED=0 ")
	line, _, _ = strings.Cut(line, "\n")
	out := t.TempDir() + "/"
	if !found || strings.Count(line, " /out/ ") != 1 {
		t.Fatalf("Containerfile's build: got %q, want one command that builds to /out/", line)
	}
	build := exec.CommandContext(t.Context(), "sh", "-c", "CGO_ENABLED=0 "+strings.Replace(line, " /out/ ", " "+out+" ", 1))
	build.Dir = ".."
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("the image's build: got error %v, want none\n%s", err, text)
	}
	for _, name := range []string{"master", "standby", "masterctl"} {
		program, err := elf.Open(out + name)
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range program.Progs {
			if part.Type == elf.PT_INTERP {
				t.Errorf("%s wants a loader", name)
			}
		}
		if libraries, err := program.ImportedLibraries(); err != nil || len(libraries) > 0 {
			t.Errorf("%s wants %v, %v", name, libraries, err)
		}
		_ = program.Close()
	}
}

func TestContainerfileIsOfOurGo(t *testing.T) {
	text := readFile(t, "Containerfile")
	_, image, _ := strings.Cut(text, "library/golang:")
	builds, _, _ := strings.Cut(image, "-")
	for _, module := range []string{"../go.mod", "../tools/go.mod", "go.mod"} {
		_, line, _ := strings.Cut(readFile(t, module), "\ntoolchain go")
		if pinned, _, _ := strings.Cut(line, "\n"); builds == "" || builds != pinned {
			t.Errorf("the image's Go: got %q, want what %s names: %q", builds, module, pinned)
		}
	}
	for _, want := range []string{"CGO_ENABLED=0", "distroless/static", "USER 65532", "--chown=65532:65532 /data /var/lib/understudy"} {
		if !strings.Contains(text, want) {
			t.Errorf("Containerfile: got no %s, want it", want)
		}
	}
}
