package deploy_test

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"
)

// kinds are the objects that a chart of ours may have, with the types that a cluster reads
// them as.
var kinds = map[string]any{
	"v1 Service":                              corev1.Service{},
	"v1 ConfigMap":                            corev1.ConfigMap{},
	"apps/v1 StatefulSet":                     appsv1.StatefulSet{},
	"policy/v1 PodDisruptionBudget":           policyv1.PodDisruptionBudget{},
	"networking.k8s.io/v1 NetworkPolicy":      networkingv1.NetworkPolicy{},
	"monitoring.coreos.com/v1 ServiceMonitor": monitoringv1.ServiceMonitor{},
}

// dnsLabel is what a cluster takes for the names of services and of what has pods.
var dnsLabel = regexp.MustCompile(`^[a-z]([-a-z0-9]*[a-z0-9])?$`)

// What kubeconform checks: each object that the chart prints has a kind and a version that a
// cluster knows, a name, and no field that the kind does not have.
func TestEachObjectIsOfItsKind(t *testing.T) {
	seen := make(map[string]bool)
	for _, values := range []string{"etcd: {endpoints: [e1:2379]}", fullValues, secureValues} {
		files, err := render(t, values)
		if err != nil {
			t.Fatal(err)
		}
		for file, text := range files {
			for object := range strings.SplitSeq(text, "\n---\n") {
				if _, isTemplate := strings.CutSuffix(file, ".tpl"); isTemplate || file == "NOTES.txt" || strings.TrimSpace(object) == "" {
					continue
				}
				var meta struct {
					APIVersion, Kind string
					Metadata         struct{ Name string }
				}
				if err := yaml.Unmarshal([]byte(object), &meta); err != nil {
					t.Fatalf("%s: got error %v, want YAML", file, err)
				}
				kind := meta.APIVersion + " " + meta.Kind
				of, known := kinds[kind]
				if !known {
					t.Errorf("%s: got an object of kind %q, want a kind that this test reads", file, kind)
					continue
				}
				seen[kind] = true
				decode(t, object, reflect.New(reflect.TypeOf(of)).Interface())
				if !dnsLabel.MatchString(meta.Metadata.Name) {
					t.Errorf("%s: got the name %q, want a DNS label", file, meta.Metadata.Name)
				}
			}
		}
	}
	for kind := range kinds {
		if !seen[kind] {
			t.Errorf("the chart: got no %s, want one", kind)
		}
	}
}

// The chart's notes give a command that finds the nodes as the chart sets them up.
func TestNotesGiveACommandThatWorks(t *testing.T) {
	files, err := render(t, "{etcd: {endpoints: [e1:2379]}, clusterID: prod, ports: {rpc: 6000}}")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		if strings.HasSuffix(name, "NOTES.txt") && (!strings.Contains(text, "masterctl status") || !strings.Contains(text, "--cluster-id=prod --address=") || !strings.Contains(text, ".svc:6000")) {
			t.Errorf("the notes give:\n%s\nwant a command with the cluster's id and a node's address", text)
		}
	}
}

// What docker compose config checks: the file is of the compose specification, and what it
// refers to is there.
func TestComposeFileIsOfItsSpecification(t *testing.T) {
	options, err := cli.NewProjectOptions([]string{"compose/compose.yaml"}, cli.WithName("understudy"))
	if err != nil {
		t.Fatal(err)
	}
	project, err := options.LoadProject(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range project.Services {
		for _, v := range s.Volumes {
			if _, err := os.Stat(v.Source); v.Type == "bind" && err != nil {
				t.Errorf("%s mounts %s: got error %v, want a file that exists", s.Name, v.Source, err)
			}
		}
		if s.Build != nil {
			if _, err := os.Stat(s.Build.Context + "/" + s.Build.Dockerfile); err != nil {
				t.Errorf("%s is built from %s: got error %v, want a file that exists", s.Name, s.Build.Dockerfile, err)
			}
		}
	}
}

// What goreleaser does not see before a release: the programs and the files that go into an
// archive are there. No program has paths of the machine that built it, wherever it is built.
func TestReleaseFindsItsFiles(t *testing.T) {
	var project struct {
		Builds []struct {
			Main, Binary string
			Flags        []string
		}
		Archives []struct{ Files []string }
		SBOMs    []struct{ Artifacts string }
	}
	if err := yaml.Unmarshal([]byte(readFile(t, "../.goreleaser.yaml")), &project); err != nil {
		t.Fatal(err)
	}
	var programs []string
	for _, b := range project.Builds {
		programs = append(programs, b.Binary)
		if !slices.Contains(b.Flags, "-trimpath") {
			t.Errorf("%s is built with %v, want -trimpath among them", b.Binary, b.Flags)
		}
		if _, err := os.Stat("../" + b.Main); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{"Containerfile", "../Makefile"} {
		lines := regexp.MustCompile("(?m)^.*go build.*$").FindAllString(readFile(t, name), -1)
		if len(lines) != 1 || !strings.Contains(lines[0], " -trimpath ") {
			t.Errorf("%s builds with %q, want one go build, with -trimpath", name, lines)
		}
	}
	if want := []string{"master", "standby", "masterctl"}; !slices.Equal(programs, want) {
		t.Errorf("a release has %v, want %v", programs, want)
	}
	if len(project.SBOMs) != 1 || project.SBOMs[0].Artifacts != "archive" {
		t.Errorf("a release has the SBOMs %+v, want one of each archive", project.SBOMs)
	}
	for _, a := range project.Archives {
		for _, pattern := range a.Files {
			if list, err := filepath.Glob("../" + pattern); err != nil || len(list) == 0 {
				t.Errorf("an archive has %s: got %v, %v; want files", pattern, list, err)
			}
		}
	}
}
