package kube_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/evenkeel-go/evenkeel/kube"
)

// The error must contain the searched places and the next step. client-go's own error mentions KUBERNETES_MASTER, which
// is not used.
func TestLoadConfigWithoutCluster(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	for name, tc := range map[string]struct {
		env  string
		want []string
	}{
		"nothing is set":           {want: []string{"$KUBECONFIG is not set", "not run in a Pod", "set $KUBECONFIG to the path of a kubeconfig"}},
		"the variable's is absent": {env: missing, want: []string{"$KUBECONFIG names no file that exists (" + missing + "): correct it, or unset it"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("KUBECONFIG", tc.env)
			t.Setenv("KUBERNETES_SERVICE_HOST", "")
			if tc.env == "" {
				if _, err := os.Stat(clientcmd.RecommendedHomeFile); err == nil {
					t.Setenv("KUBECONFIG", missing) // this user has a cluster
					tc.want = nil
				}
			}
			_, err := kube.LoadConfig("")
			if err == nil {
				t.Fatal("no error")
			}
			if strings.Contains(err.Error(), "run the program in a Pod") != (tc.env == "" && tc.want != nil) {
				t.Errorf("the error advises a Pod, which does not help: %v", err)
			}
			for _, want := range append(tc.want, "no cluster is configured") {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the error lacks %q: %v", want, err)
				}
			}
			if strings.Contains(err.Error(), "KUBERNETES_MASTER") {
				t.Errorf("the error mentions an unused variable: %v", err)
			}
		})
	}
}

func TestLoadConfig(t *testing.T) {
	dir := t.TempDir()
	write := func(name, server string) string {
		path := filepath.Join(dir, name)
		text := "apiVersion: v1\nkind: Config\ncurrent-context: c\n" +
			"clusters: [{name: k, cluster: {server: " + server + "}}]\n" +
			"contexts: [{name: c, context: {cluster: k}}]\n"
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	explicit, fromEnv := write("explicit", "https://explicit:1"), write("env", "https://env:1")
	missing := filepath.Join(dir, "missing")
	for name, tc := range map[string]struct {
		path, env, want, wantErr string
	}{
		"path before environment": {path: explicit, env: fromEnv, want: "https://explicit:1"},
		"environment":             {env: fromEnv, want: "https://env:1"},
		"path that is not there":  {path: missing, env: fromEnv, wantErr: missing},
		"nothing":                 {env: missing, wantErr: missing},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("KUBECONFIG", tc.env)
			config, err := kube.LoadConfig(tc.path)
			if tc.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wantErr) {
					t.Errorf("got %v, want %q in the error", err, tc.wantErr)
				}
				return
			}
			if err != nil || config.Host != tc.want {
				t.Errorf("got %v, %v; want %s", config, err, tc.want)
			}
		})
	}
}
