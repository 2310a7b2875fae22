package localcluster

import (
	"fmt"
	"os"
	"path"
	"strings"
)

// envKubernetesVersion is the environment variable with the default of [Config.KubernetesVersion]. With it, the same
// tests run on several Kubernetes versions.
const envKubernetesVersion = "EVENKEEL_KUBERNETES_VERSION"

// defaultKubernetes is the version in the go.mod of the cluster's module. For the other versions, the module's folder
// versions has files that replace go.mod and go.sum.
const defaultKubernetes = "1.36.3"

// kubernetesVersions returns all supported versions, from old to new.
func kubernetesVersions() []string { return []string{defaultKubernetes, "1.37.2"} }

// requested is a Kubernetes version that the caller selected. Its zero value selects the default.
type requested struct {
	text string // without v: 1.36, 1.36.3, or ""
	full string // 1.36.3, or ""
}

// requestedVersion returns the version that field or, if field is empty, the environment variable selects.
func requestedVersion(field string) (requested, error) {
	name, text := "KubernetesVersion", field
	if field == "" {
		name, text = envKubernetesVersion, os.Getenv(envKubernetesVersion)
	}
	r := requested{text: strings.TrimPrefix(text, "v")}
	if text == "" {
		return r, nil
	}
	supported := kubernetesVersions()
	for _, full := range supported {
		if r.text == full || r.text == minor(full) {
			r.full = full
			return r, nil
		}
	}
	return requested{}, fmt.Errorf("%s is %q: must be %s to %s, or one of %s", name, text, minor(supported[0]),
		minor(supported[len(supported)-1]), strings.Join(supported, ", "))
}

// modFile returns the path of the go.mod file for the version in the folder of the cluster's module, or "" for go.mod.
func (r requested) modFile() string {
	if r.full == "" || r.full == defaultKubernetes {
		return ""
	}
	return path.Join(versionsDir, minor(r.full)+".mod")
}

// includes reports whether the version of a server, such as v1.36.3+k3s1, is the selected one.
func (r requested) includes(server string) bool {
	rest, ok := strings.CutPrefix(strings.TrimPrefix(server, "v"), r.text)
	return ok && (r.text == "" || rest == "" || rest[0] < '0' || rest[0] > '9')
}

// minor returns 1.36 for 1.36.3.
func minor(version string) string { return version[:strings.LastIndexByte(version, '.')] }
