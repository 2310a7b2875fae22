package localcluster

import (
	"debug/buildinfo"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRequestedVersion(t *testing.T) {
	t.Setenv(envKubernetesVersion, "")
	for text, want := range map[string]struct{ full, modFile string }{
		"":        {"", ""},
		"1.37":    {"1.37.2", "versions/1.37.mod"},
		"v1.37":   {"1.37.2", "versions/1.37.mod"},
		"1.37.2":  {"1.37.2", "versions/1.37.mod"},
		"1.36":    {defaultKubernetes, ""},
		"v1.36.3": {defaultKubernetes, ""},
	} {
		r, err := requestedVersion(text)
		if err != nil || r.full != want.full || r.modFile() != want.modFile {
			t.Errorf("%q: got %+v with %q, %v; want %+v", text, r, r.modFile(), err, want)
		}
	}
}

func TestVersionFromEnvironment(t *testing.T) {
	t.Setenv(envKubernetesVersion, "1.37")
	for field, want := range map[string]string{"": "1.37.2", "1.36": "1.36.3"} {
		if r, err := requestedVersion(field); err != nil || r.full != want {
			t.Errorf("field %q: got %+v, %v; want %s", field, r, err, want)
		}
	}
	if args := (Config{}).withDefaults().arguments(); !strings.Contains(strings.Join(args, " "), "--kubernetes-version=1.37") {
		t.Errorf("the binary's arguments are %q, without the version", args)
	}
	t.Setenv(envKubernetesVersion, "latest")
	if _, err := Start(t.Context(), Config{Progress: io.Discard}); err == nil || !strings.Contains(err.Error(), envKubernetesVersion+` is "latest"`) {
		t.Errorf("got %v, want an error that names the variable", err)
	}
}

func TestUnsupportedVersionsAreRejected(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"../x", "latest", "1.12", "1.35", "1.38", "1", "1.", ".37", "v", "vv1.37", "1.37.", "1.37.99", "1.37.2-rc.1", "1.36/../1.37", " 1.37", "-1.37",
		"1.3", "2.37", "1.37\n", "versions/1.37", "1.037",
	} {
		for name, use := range map[string]func() error{
			"Start": func() error {
				_, err := Start(t.Context(), Config{KubernetesVersion: text, Progress: io.Discard})
				return err
			},
			"Build": func() error {
				_, err := Build(t.Context(), text, io.Discard)
				return err
			},
		} {
			if err := use(); err == nil || !strings.Contains(err.Error(), "must be 1.36 to 1.37, or one of 1.36.3, ") {
				t.Errorf("%s with %q: got %v", name, text, err)
			}
		}
	}
}

func TestServerVersionIsRequestedVersion(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		text, server string
		want         bool
	}{
		{"1.34", "v1.34.4", true},
		{"1.34", "v1.34.8+k3s1", true},
		{"1.34.4", "v1.34.4", true},
		{"v1.34.4", "v1.34.4-gke.100", true},
		{"", "v1.2.3", true},
		{"1.34", "v1.35.4", false},
		{"1.34", "v1.340.0", false},
		{"1.34.4", "v1.34.40", false},
		{"1.34.4", "v1.34.3", false},
		{"1.34", "", false},
	} {
		if got := (requested{text: strings.TrimPrefix(test.text, "v")}).includes(test.server); got != test.want {
			t.Errorf("%q with the server %q: got %v", test.text, test.server, got)
		}
	}
}

// The list in the code and the files of the module must be the same.
func TestModuleHasAllVersions(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join("server", versionsDir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	kubernetes := regexp.MustCompile(`(?m)^\s*k8s\.io/kubernetes v(\S+)$`)
	want := 0
	for _, full := range kubernetesVersions() {
		r, err := requestedVersion(full)
		if err != nil {
			t.Fatal(err)
		}
		name := "go.mod"
		if r.modFile() != "" {
			name = r.modFile()
			want += 2 // with its .sum
		}
		content, err := os.ReadFile(filepath.Join("server", name))
		if err != nil {
			t.Fatal(err)
		}
		if m := kubernetes.FindSubmatch(content); m == nil || string(m[1]) != full {
			t.Errorf("%s requires Kubernetes %q, want %s", name, m, full)
		}
	}
	if len(files) != want {
		t.Errorf("the folder %s has %d files, want %d: %v", versionsDir, len(files), want, files)
	}
}

func TestBuildUsesModFileOfVersion(t *testing.T) {
	t.Parallel()
	source := module(t, helloSource)
	if err := os.Mkdir(filepath.Join(source, versionsDir), 0o700); err != nil {
		t.Fatal(err)
	}
	modFile := filepath.Join(source, versionsDir, "1.34.mod")
	write(t, modFile, "module example.com/older\n\ngo 1.26\n")
	write(t, filepath.Join(source, versionsDir, "1.34.sum"), "")
	latest := newBuilder(t, io.Discard)
	older := latest
	older.modFile = versionsDir + "/1.34.mod"
	build := func(b builder) (binary, module string) {
		t.Helper()
		binary, err := b.build(t.Context(), source)
		if err != nil {
			t.Fatal(err)
		}
		info, err := buildinfo.ReadFile(binary)
		if err != nil {
			t.Fatal(err)
		}
		return binary, info.Main.Path
	}
	first, module := build(latest)
	olderFirst, olderModule := build(older)
	if diff := cmp.Diff([]string{"example.com/small", "example.com/older"}, []string{module, olderModule}); diff != "" {
		t.Errorf("modules of the binaries (-want +got):\n%s", diff)
	}
	if first == olderFirst {
		t.Error("both versions have the same cached binary")
	}
	write(t, modFile, "module example.com/older\n\ngo 1.26.0\n")
	if again, _ := build(latest); again != first {
		t.Error("another version's go.mod changed the binary of the default")
	}
	if again, _ := build(older); again == olderFirst {
		t.Error("the version's go.mod changed, but not its cached binary")
	}
	older.modFile = versionsDir + "/1.35.mod"
	if _, err := older.build(t.Context(), source); err == nil || !strings.Contains(err.Error(), "1.35.mod") {
		t.Errorf("a source without the version: got %v", err)
	}
}
