// Package manifests writes the objects with which a cluster runs a program.
package manifests

import (
	"encoding/json"
	"errors"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/evenkeel-go/evenkeel/internal/apiobject"
)

// Program is what the objects are made from.
type Program struct {
	// Name is that of the objects in Namespace. Others have both in their name, because there may be several
	// installations.
	Name, Namespace string
	Image           string
	Args            []string
	LeaderElect     bool
	Ports           []Port
	// Probes is the name of the port of the probes, or "". Scheme is that of the port http, HTTP or HTTPS.
	Probes, ProbeScheme, Scheme string
	GracePeriod                 int // in seconds
	// Authorize is whether /metrics needs a token.
	Authorize bool

	// Permissions and Requests become RBAC: in Namespaces, or with a ClusterRole if there are none.
	Permissions []apiobject.Permission
	Requests    []Request
	Namespaces  []string
	// ReadOnly removes the verbs of writes from Permissions.
	ReadOnly bool

	// Definitions are printed. OtherDefinitions are those of other kinds, which exist.
	Definitions, OtherDefinitions []Definition
	// Fence is the fence of a lease, as YAML, or "". With it the Pod gets its uid.
	Fence string

	NetworkPolicy, ServiceMonitor bool
	// Alerts are the groups of a PrometheusRule, as YAML, or "".
	Alerts string
}

// Request is what the program does by itself: see evenkeel.Program.Permit.
type Request struct {
	Resource schema.GroupResource
	Verbs    []string
	Objects  []types.NamespacedName
}

// Port is a port of the Pod, and Service the one of the Service.
type Port struct {
	Name    string
	Number  int
	Service int
}

// Definition is a CustomResourceDefinition.
type Definition map[string]any

// AddDefinitions adds definitions, a slice of Go structs, without the fields that the API server sets.
func (p *Program) AddDefinitions(definitions any) error {
	encoded, err := json.Marshal(definitions)
	if err == nil {
		err = json.Unmarshal(encoded, &p.Definitions)
	}
	for _, definition := range p.Definitions {
		delete(definition, "status")
		if metadata, ok := definition["metadata"].(map[string]any); ok {
			delete(metadata, "creationTimestamp")
		}
	}
	return err
}

// AddOtherDefinitions adds the definitions in a YAML file. Other objects are ignored.
func (p *Program) AddOtherDefinitions(text []byte) error {
	found := false
	for document := range strings.SplitSeq("\n"+string(text), "\n---") {
		var object struct {
			Items []Definition `json:"items"` // of a List, as kubectl get prints it
		}
		var definition Definition
		if err := errors.Join(yaml.Unmarshal([]byte(document), &object),
			yaml.Unmarshal([]byte(document), &definition)); err != nil {
			return err
		}
		for _, definition := range append(object.Items, definition) {
			if definition["kind"] == "CustomResourceDefinition" {
				p.OtherDefinitions, found = append(p.OtherDefinitions, definition), true
			}
		}
	}
	if !found {
		return errors.New("the file has no CustomResourceDefinition")
	}
	return nil
}

func (d Definition) field(path ...string) string {
	value := any(map[string]any(d))
	for _, name := range path {
		fields, _ := value.(map[string]any)
		value = fields[name]
	}
	text, _ := value.(string)
	return text
}

// OwnsNamespace reports whether the namespace is among the objects: those of Kubernetes are not.
func (p Program) OwnsNamespace() bool {
	return p.Namespace != "default" && !strings.HasPrefix(p.Namespace, "kube-")
}
