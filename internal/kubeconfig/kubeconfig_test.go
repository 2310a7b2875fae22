package kubeconfig

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// writeConfig writes a kubeconfig with the contexts "one" (current, namespace "shop") and "two".
func writeConfig(t *testing.T, host string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config")
	text := fmt.Sprintf(`
apiVersion: v1
kind: Config
current-context: one
clusters:
- {name: one, cluster: {server: "https://%[1]s-one:1"}}
- {name: two, cluster: {server: "https://%[1]s-two:1"}}
contexts:
- {name: one, context: {cluster: one, namespace: shop}}
- {name: two, context: {cluster: two}}
`, host)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestLoadOrder(t *testing.T) {
	explicit, env, home := writeConfig(t, "explicit"), writeConfig(t, "env"), writeConfig(t, "home")
	missing := filepath.Join(t.TempDir(), "missing")
	original := clientcmd.RecommendedHomeFile
	t.Cleanup(func() { clientcmd.RecommendedHomeFile = original })
	pod := func() (*rest.Config, error) { return &rest.Config{Host: "https://pod:1"}, nil }
	noPod := func() (*rest.Config, error) { return nil, rest.ErrNotInCluster }
	noToken := func() (*rest.Config, error) {
		return nil, &fs.PathError{Op: "open", Path: "token", Err: fs.ErrNotExist}
	}
	unreadable := func() (*rest.Config, error) {
		return nil, &fs.PathError{Op: "open", Path: "token", Err: fs.ErrPermission}
	}
	write := func(text string) string {
		path := filepath.Join(t.TempDir(), "config")
		if err := os.WriteFile(path, []byte("apiVersion: v1\nkind: Config\n"+text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	list := func(files ...string) string { return strings.Join(files, string(os.PathListSeparator)) }
	three := write("clusters: [{name: three, cluster: {server: 'https://three:1'}}]\ncontexts: [{name: three, context: {cluster: three}}]")
	dangling := write("current-context: x\ncontexts: [{name: x, context: {cluster: missing}}]")
	for name, tc := range map[string]struct {
		path, context, env, home string
		inCluster                func() (*rest.Config, error)
		want, wantNamespace      string
		wantErr                  string
	}{
		"path":                       {explicit, "", env, home, pod, "https://explicit-one:1", "shop", ""},
		"environment":                {"", "", env, home, pod, "https://env-one:1", "shop", ""},
		"list of files":              {"", "", missing + string(os.PathListSeparator) + env, home, pod, "https://env-one:1", "shop", ""},
		"Pod":                        {"", "", "", home, pod, "https://pod:1", "", ""},
		"Pod, environment's missing": {"", "", missing, home, pod, "", "", missing + "): correct it, or unset it to use "},
		"home":                       {"", "", "", home, noPod, "https://home-one:1", "shop", ""},
		"Pod without token":          {"", "", "", home, noToken, "https://home-one:1", "shop", ""},
		"Pod with unreadable token":  {"", "", "", home, unreadable, "", "", "load the Pod's service account"},
		"context of path":            {explicit, "two", env, home, pod, "https://explicit-two:1", "default", ""},
		"context of environment":     {"", "two", env, home, pod, "https://env-two:1", "default", ""},
		"context of home, in a Pod":  {"", "two", "", home, pod, "https://home-two:1", "default", ""},
		"unknown context":            {"", "three", env, home, pod, "", "", `"three" does not exist`},
		"missing path":               {missing, "", env, home, pod, "", "", missing},
		"context of the second file": {"", "three", list(env, three), home, pod, "https://three:1", "default", ""},
		"same names in two files":    {"", "", list(env, explicit), home, pod, "https://env-one:1", "shop", ""},
		"empty names in the list":    {"", "", list("", env, ""), home, pod, "https://env-one:1", "shop", ""},
		"invalid second file":        {"", "", list(env, write("{")), home, pod, "", "", "error loading config file"},
		"directory":                  {"", "", t.TempDir(), home, pod, "", "", "is a directory"},
		"no current context":         {"", "", three, home, pod, "", "", `no context chosen: the contexts are ["three"]`},
		"context without cluster":    {dangling, "", env, home, pod, "", "", `cluster "missing" was not found for context "x"`},
		"empty file":                 {write(""), "", env, home, pod, "", "", "there are no contexts"},
		"empty home file":            {"", "", "", write(""), noPod, "", "", "there are no contexts"},
		"nothing":                    {"", "", "", missing, noPod, "", "", "no cluster is configured"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("KUBECONFIG", tc.env)
			t.Setenv("KUBERNETES_SERVICE_HOST", "")
			clientcmd.RecommendedHomeFile = tc.home
			config, namespace, err := load(tc.path, tc.context, tc.inCluster)
			if tc.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wantErr) {
					t.Errorf("got error %v, want one with %q", err, tc.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if config.Host != tc.want || namespace != tc.wantNamespace {
				t.Errorf("got %s, namespace %q; want %s, %q", config.Host, namespace, tc.want, tc.wantNamespace)
			}
		})
	}
}

// In a Pod, a kubeconfig that was named is used or is an error: a program that was told to write elsewhere must never
// write to the cluster of its Pod. client-go's deferred loader falls back to it where the files of a service account
// exist, which this test cannot create; a linter forbids that loader.
func TestNamedFileNeverSelectsTheClusterOfThePod(t *testing.T) {
	folder := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	cluster, user := "clusters: [{name: a, cluster: {server: 'https://a:1'}}]\n", "users: [{name: a, user: {token: x}}]\n"
	selected := "current-context: a\n"
	for name, file := range map[string]struct{ path, wantErr string }{
		"missing":            {filepath.Join(folder, "missing"), "missing"},
		"empty":              {write("empty", ""), "no contexts"},
		"spaces":             {write("spaces", "  \n\n"), "no contexts"},
		"only a kind":        {write("kind", "apiVersion: v1\nkind: Config\n"), "no contexts"},
		"no context":         {write("context", cluster+user), "no contexts"},
		"nothing selected":   {write("unselected", cluster+"contexts: [{name: a, context: {cluster: a}}]\n"), "no context chosen"},
		"context missing":    {write("dangling", cluster+user+selected), "context was not found"},
		"cluster missing":    {write("nocluster", user+selected+"contexts: [{name: a, context: {cluster: a, user: a}}]\n"), `"a"`},
		"context is empty":   {write("emptycontext", cluster+selected+"contexts: [{name: a, context: {}}]\n"), `"a"`},
		"cluster is empty":   {write("emptycluster", selected+"clusters: [{name: a, cluster: {}}]\ncontexts: [{name: a, context: {cluster: a}}]\n"), `"a"`},
		"no server":          {write("noserver", selected+"clusters: [{name: a, cluster: {insecure-skip-tls-verify: true}}]\ncontexts: [{name: a, context: {cluster: a}}]\n"), `"a"`},
		"only a namespace":   {write("namespace", selected+"contexts: [{name: a, context: {namespace: shop}}]\n"), `"a"`},
		"users of no one":    {write("users", selected+user), "context was not found"},
		"not a kubeconfig":   {write("other", "a: b\n"), "no contexts"},
		"folder, not a file": {folder, "directory"},
	} {
		for _, by := range []string{"path", "environment", "list", "context"} {
			t.Run(name+" by "+by, func(t *testing.T) {
				t.Setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
				t.Setenv("KUBERNETES_SERVICE_PORT", "1")
				t.Setenv("KUBECONFIG", "")
				path, context := "", ""
				switch by {
				case "path":
					path = file.path
				case "list":
					t.Setenv("KUBECONFIG", file.path+string(os.PathListSeparator)+filepath.Join(folder, "absent"))
				case "context":
					context = "b"
					fallthrough
				case "environment":
					t.Setenv("KUBECONFIG", file.path)
				}
				config, _, err := load(path, context, func() (*rest.Config, error) {
					t.Error("the cluster of the Pod was loaded")
					return &rest.Config{Host: "https://pod:1"}, nil
				})
				if err == nil {
					t.Fatalf("no error, and %s", config.Host)
				}
				if strings.Contains(err.Error(), "serviceaccount") || context == "" && !strings.Contains(err.Error(), file.wantErr) {
					t.Errorf("the error is %v, want one with %q", err, file.wantErr)
				}
			})
		}
	}
}

// A context without a namespace has the namespace default, and not that of the Pod.
func TestNamespaceOfNamedFileInPod(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
	t.Setenv("KUBERNETES_SERVICE_PORT", "1")
	config, namespace, err := load(writeConfig(t, "explicit"), "two", nil)
	if err != nil || config.Host != "https://explicit-two:1" || namespace != "default" {
		t.Errorf("got %v, namespace %q, %v", config, namespace, err)
	}
}
