// Command generate writes schemas.json.gz of package openapi. go generate runs it.
package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/evenkeel-go/evenkeel/internal/apiserver/openapi"
)

func main() {
	content, err := generate()
	if err == nil {
		err = os.WriteFile("schemas.json.gz", content, 0o600)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

// documents returns the kinds whose schemas the package has, by the document that contains them.
func documents() map[string][]string {
	return map[string][]string{
		"api__v1": {
			"core.v1.ConfigMap", "core.v1.Event", "core.v1.Namespace", "core.v1.Pod",
			"core.v1.Secret", "core.v1.Service", "core.v1.ServiceAccount",
		},
		"apis__apps__v1": {
			"apps.v1.DaemonSet", "apps.v1.Deployment", "apps.v1.ReplicaSet",
			"apps.v1.StatefulSet",
		},
		"apis__authentication.k8s.io__v1": {"authentication.v1.SelfSubjectReview", "authentication.v1.TokenReview"},
		"apis__authorization.k8s.io__v1": {
			"authorization.v1.LocalSubjectAccessReview", "authorization.v1.SelfSubjectAccessReview",
			"authorization.v1.SelfSubjectRulesReview", "authorization.v1.SubjectAccessReview",
		},
		"apis__batch__v1":               {"batch.v1.Job"},
		"apis__coordination.k8s.io__v1": {"coordination.v1.Lease"},
		"apis__events.k8s.io__v1":       {"events.v1.Event"},
		"apis__policy__v1":              {"policy.v1.PodDisruptionBudget"},
	}
}

func generate() ([]byte, error) {
	// The module localcluster/server has the version of Kubernetes that the server behaves like.
	command := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes")
	command.Dir = "../../../localcluster/server"
	folder, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("find the sources of Kubernetes: %w", err)
	}
	reached := map[string]json.RawMessage{}
	for document, kinds := range documents() {
		text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(folder)), "api", "openapi-spec", "v3",
			document+"_openapi.json"))
		if err != nil {
			return nil, err
		}
		var content struct {
			Components struct {
				Schemas map[string]json.RawMessage `json:"schemas"`
			} `json:"components"`
		}
		if err := json.Unmarshal(text, &content); err != nil {
			return nil, fmt.Errorf("decode %s: %w", document, err)
		}
		for _, kind := range kinds {
			if _, exists := content.Components.Schemas["io.k8s.api."+kind]; !exists {
				return nil, fmt.Errorf("%s does not have %s", document, kind)
			}
			openapi.Reachable(content.Components.Schemas, reached, "io.k8s.api."+kind)
		}
	}
	text, err := json.Marshal(reached)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	writer, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := writer.Write(text); err != nil {
		return nil, err
	}
	err = writer.Close()
	return b.Bytes(), err
}
