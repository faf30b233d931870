package deploy_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"text/template"

	"github.com/Masterminds/sprig/v3"
	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"

	"github.com/understudy-store/understudy/internal/config"
)

const chart = "helm/understudy"

// A chartRenderer renders templates as helm does, with the functions that ours use.
// helm itself would bring all of Kubernetes' client along.
type chartRenderer struct{ *template.Template }

func newChartRenderer(t *testing.T) chartRenderer {
	t.Helper()
	r := chartRenderer{template.New("chart").Option("missingkey=error")}
	r.Funcs(sprig.TxtFuncMap()).Funcs(template.FuncMap{
		"include": func(name string, data any) (string, error) {
			var b strings.Builder
			err := r.ExecuteTemplate(&b, name, data)
			return b.String(), err
		},
		"toYaml": func(v any) (string, error) {
			b, err := yaml.Marshal(v)
			return strings.TrimSuffix(string(b), "\n"), err
		},
		"required": func(why string, v any) (any, error) {
			if list, ok := v.([]any); v == nil || ok && len(list) == 0 {
				return nil, fmt.Errorf("%s", why)
			}
			return v, nil
		},
	})
	if _, err := r.ParseGlob(filepath.Join(chart, "templates", "*")); err != nil {
		t.Fatal(err)
	}
	return r
}

// render returns the objects of the chart with some values besides its own.
func (r chartRenderer) render(t *testing.T, values string) (map[string]string, error) {
	t.Helper()
	data := map[string]any{
		"Values": merged(t, readFile(t, chart+"/values.yaml"), values), "Chart": struct{ AppVersion string }{"1.2.3"},
		"Release": struct{ Name, Namespace, Service string }{"kv", "cache", "Helm"},
	}
	objects := make(map[string]string)
	files, err := fs.Glob(os.DirFS(chart), "templates/*.yaml")
	if err != nil || len(files) < 5 {
		t.Fatalf("templates %v: %v", files, err)
	}
	for _, f := range files {
		var b bytes.Buffer
		if err := r.ExecuteTemplate(&b, filepath.Base(f), data); err != nil {
			return nil, err
		}
		if strings.TrimSpace(b.String()) != "" {
			objects[strings.TrimSuffix(filepath.Base(f), ".yaml")] = b.String()
		}
	}
	return objects, nil
}

// merged lays YAML over other YAML.
func merged(t *testing.T, base, over string) map[string]any {
	t.Helper()
	var values, more map[string]any
	decode(t, base, &values)
	decode(t, over, &more)
	var lay func(under, over map[string]any)
	lay = func(under, over map[string]any) {
		for name, v := range over {
			if inner, ok := v.(map[string]any); ok && under[name] != nil {
				lay(under[name].(map[string]any), inner)
				continue
			}
			under[name] = v
		}
	}
	lay(values, more)
	return values
}

// decode reads YAML; fields that the result does not have are errors.
func decode(t *testing.T, text string, into any) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(text), into); err != nil {
		t.Fatalf("%v in:\n%s", err, text)
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

const fullValues = `
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

func TestChartIsOfKubernetesTypes(t *testing.T) {
	for _, values := range []string{"etcd: {endpoints: [e1:2379]}", fullValues} {
		objects, err := newChartRenderer(t).render(t, values)
		if err != nil {
			t.Fatal(err)
		}
		var set appsv1.StatefulSet
		decode(t, objects["statefulset"], &set)
		decode(t, objects["service"], new(corev1.Service))
		decode(t, objects["configmap"], new(corev1.ConfigMap))
		decode(t, objects["poddisruptionbudget"], new(policyv1.PodDisruptionBudget))
		if want := strings.Contains(values, "serviceMonitor"); (objects["servicemonitor"] != "") != want {
			t.Errorf("got a service monitor %q, want one: %v", objects["servicemonitor"], want)
		}
		for name, probe := range map[string]*corev1.Probe{
			"/health": set.Spec.Template.Spec.Containers[0].LivenessProbe, "/readyz?role=standby": set.Spec.Template.Spec.Containers[0].ReadinessProbe,
		} {
			if probe.HTTPGet.Path != name {
				t.Errorf("a probe asks %s, want %s", probe.HTTPGet.Path, name)
			}
		}
		for label, value := range set.Spec.Selector.MatchLabels {
			if set.Spec.Template.Labels[label] != value {
				t.Errorf("the StatefulSet selects %s=%s, and its pods have %q", label, value, set.Spec.Template.Labels[label])
			}
		}
	}
	if _, err := newChartRenderer(t).render(t, ""); err == nil || !strings.Contains(err.Error(), "etcd.endpoints is empty") {
		t.Errorf("got %v without etcd, want that it is needed", err)
	}
}

// Settings in files and in the environment are those of a node, and accepted.
func TestSettingsAreAccepted(t *testing.T) {
	objects, err := newChartRenderer(t).render(t, fullValues)
	if err != nil {
		t.Fatal(err)
	}
	var m corev1.ConfigMap
	decode(t, objects["configmap"], &m)
	accepted(t, m.Data["node.yaml"], "UNDERSTUDY_NODE_ID=kv-0", "UNDERSTUDY_ADVERTISE_ADDRESS=kv-0.kv.cache.svc")
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
		t.Fatalf("got %v and warnings %v for:\n%s%v", err, warnings, file, env)
	}
	if !c.HA.Enabled || len(c.HA.EtcdEndpoints) < 2 {
		t.Errorf("got etcd %v, want several members", c.HA.EtcdEndpoints)
	}
}

func TestContainerfileIsOfOurGo(t *testing.T) {
	text := readFile(t, "Containerfile")
	module := readFile(t, "../go.mod")
	_, line, _ := strings.Cut(module, "\ngo ")
	least, _, _ := strings.Cut(line, "\n")
	_, image, _ := strings.Cut(text, "library/golang:")
	version, _, _ := strings.Cut(image, "-")
	if slices.Compare(strings.Split(version, "."), strings.Split(least, ".")) < 0 {
		t.Errorf("the image builds with Go %s, and go.mod wants %s", version, least)
	}
	for _, want := range []string{"CGO_ENABLED=0", "distroless/static", "USER 65532", "--chown=65532:65532 /data /var/lib/understudy"} {
		if !strings.Contains(text, want) {
			t.Errorf("Containerfile has no %s", want)
		}
	}
}
