package kube_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evenkeel-go/evenkeel/kube"
)

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
