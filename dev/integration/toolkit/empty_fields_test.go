package toolkit

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/evenkeel-go/evenkeel/owned"
)

// Configurations that are read from files may contain nulls, and empty maps, lists and strings. Children with such
// fields converge, and a restart makes no request for them.
func TestChildrenWithEmptyFieldsConverge(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"empty Deployment": `
apiVersion: apps/v1
kind: Deployment
metadata: {name: x, creationTimestamp: null, annotations: {}}
spec:
  replicas: 1
  strategy: {}
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}, creationTimestamp: null}
    spec:
      nodeSelector: null
      volumes: []
      tolerations: []
      containers:
      - {name: a, image: a, args: [], env: [], resources: {}, ports: []}
      - {name: b, image: b, resources: {limits: {cpu: 1000m, memory: 1024Mi}}, env: [{name: X, value: ""}], command: null}
status: {}
`,
		"null Deployment": `
apiVersion: apps/v1
kind: Deployment
metadata: {name: x, labels: null}
spec:
  replicas: null
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      securityContext: {}
      containers:
      - {name: a, image: a, env: null, ports: null, resources: null, livenessProbe: null}
`,
		"Service": `
apiVersion: v1
kind: Service
metadata: {name: x}
spec:
  clusterIP: ""
  externalIPs: []
  selector: {}
  ports: [{port: 80, targetPort: 80, name: a}, {port: 81, targetPort: "http", name: b, protocol: TCP}, {port: 81, name: c, protocol: UDP}]
`,
		"empty ConfigMap": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\ndata: {}\n",
		"ConfigMap":       "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\ndata: {a: ''}\nbinaryData: {}\nimmutable: null\n",
		"null ConfigMap":  "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\ndata: null\n",
		"Secret":          "apiVersion: v1\nkind: Secret\nmetadata: {name: x}\ndata: null\nstringData: {a: b}\n",
		"empty Secret":    "apiVersion: v1\nkind: Secret\nmetadata: {name: x}\ndata: {a: YQ==, b: ''}\nstringData: {}\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			obj := &unstructured.Unstructured{}
			if err := yaml.Unmarshal([]byte(text), &obj.Object); err != nil {
				t.Fatal(err)
			}
			r, _ := newRestarts(t)
			r.want(owned.Of(obj), map[string]owned.ChildOutcome{obj.GetKind(): owned.Created})
			r.want(owned.Of(obj), nil)
		})
	}
}
