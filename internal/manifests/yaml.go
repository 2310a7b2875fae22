package manifests

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"sigs.k8s.io/yaml"
)

// writer collects documents. They are not a template, because package text/template makes the linker keep all methods.
type writer struct {
	Program
	documents []string
	errs      []error
}

// YAML returns the objects as one stream of documents.
func (p Program) YAML() ([]byte, error) {
	w := &writer{Program: p}
	if p.OwnsNamespace() {
		w.add("apiVersion: v1\nkind: Namespace\nmetadata:\n  name: %s", w.text(p.Namespace))
	}
	for _, definition := range p.Definitions {
		w.addObject(definition)
	}
	w.add("apiVersion: v1\nkind: ServiceAccount\n%s", w.metadata(p.Namespace))
	roles, err := p.Roles()
	w.errs = append(w.errs, err)
	for _, role := range roles {
		w.addRole(role)
	}
	w.addDeployment()
	w.addService()
	if p.NetworkPolicy {
		w.addNetworkPolicy()
	}
	if p.ServiceMonitor {
		w.addServiceMonitor()
	}
	if p.Alerts != "" {
		w.addAlerts()
	}
	if p.Fence != "" {
		w.add("%s", p.Fence)
	}
	return []byte(strings.Join(w.documents, "\n---\n") + "\n"), errors.Join(w.errs...)
}

func (w *writer) add(format string, values ...any) {
	w.documents = append(w.documents, strings.TrimSuffix(fmt.Sprintf(format, values...), "\n"))
}

func (w *writer) addObject(object map[string]any) {
	encoded, err := yaml.Marshal(object)
	w.errs = append(w.errs, err)
	w.add("%s", encoded)
}

// json returns a value in a form that is YAML in one line, without the characters that YAML changes or does not allow.
func (w *writer) json(value any) string {
	encoded, err := json.Marshal(value)
	w.errs = append(w.errs, err)
	var text strings.Builder
	for _, r := range string(encoded) {
		if r >= 0x7f && r <= 0x9f || r == 0xfeff {
			fmt.Fprintf(&text, `\u%04x`, r)
		} else {
			text.WriteRune(r)
		}
	}
	return text.String()
}

// text returns a string as YAML in one line. It has quotes if it would be a number or a boolean otherwise.
func (w *writer) text(value string) string {
	encoded, err := yaml.Marshal(value)
	w.errs = append(w.errs, err)
	return strings.TrimSuffix(string(encoded), "\n")
}

// name returns the name of an object in a namespace, or in none.
func (w *writer) name(namespace string) string {
	if namespace == w.Namespace {
		return w.text(w.Name)
	}
	return w.text(w.Namespace + "." + w.Name)
}

// metadata returns the metadata of an object, in a namespace or in none.
func (w *writer) metadata(namespace string) string {
	text := fmt.Sprintf("metadata:\n  name: %s\n  labels: {app.kubernetes.io/name: %s}", w.name(namespace),
		w.text(w.Name))
	if namespace != "" {
		text += "\n  namespace: " + w.text(namespace)
	}
	return text
}

func (w *writer) addRole(role Role) {
	const version = "apiVersion: " + RBACVersion + "\n"
	var rules strings.Builder
	for _, rule := range role.Rules {
		fmt.Fprintf(&rules, "\n- apiGroups: [%s]\n  resources: %s", w.json(rule.Group), w.json(rule.Resources))
		if len(rule.Names) > 0 {
			fmt.Fprintf(&rules, "\n  resourceNames: %s", w.json(rule.Names))
		}
		fmt.Fprintf(&rules, "\n  verbs: %s", w.json(rule.Verbs))
	}
	w.add(version+"kind: %s\n%s\nrules:%s", role.Kind(), w.metadata(role.Namespace), rules.String())
	w.add(version+`kind: %[1]sBinding
%[2]s
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: %[1]s, name: %[3]s}
subjects:
- {kind: ServiceAccount, name: %[4]s, namespace: %[5]s}`, role.Kind(), w.metadata(role.Namespace),
		w.name(role.Namespace), w.text(w.Name), w.text(w.Namespace))
}

func (w *writer) addDeployment() {
	replicas := "  replicas: 2 # one works, and the other takes over when it ends"
	if !w.LeaderElect {
		replicas = "  replicas: 1 # without a lease, two would work at once\n  \n" +
			"  strategy: {type: Recreate}"
	}
	w.add(`apiVersion: apps/v1
kind: Deployment
%[1]s
spec:
%[2]s
  selector:
    matchLabels: {app.kubernetes.io/name: %[3]s}
  template:
    metadata:
      labels: {app.kubernetes.io/name: %[3]s}
    spec:
      serviceAccountName: %[3]s
      enableServiceLinks: false
      terminationGracePeriodSeconds: %[4]d
      securityContext:
        runAsNonRoot: true
        runAsUser: 65532
        runAsGroup: 65532
        seccompProfile: {type: RuntimeDefault}
      containers:
      - name: %[3]s
        image: %[5]s%[6]s
        resources:
          requests: {cpu: 10m, memory: 64Mi}
        securityContext:
          allowPrivilegeEscalation: false
          readOnlyRootFilesystem: true
          capabilities: {drop: [ALL]}`,
		w.metadata(w.Namespace), replicas, w.text(w.Name), w.GracePeriod, w.json(w.Image), w.container())
}

// container returns the fields of the container that depend on the program.
func (w *writer) container() string {
	var text strings.Builder
	if len(w.Args) > 0 {
		text.WriteString("\n        args:")
	}
	for _, arg := range w.Args {
		// kubelet expands $(NAME), and replaces $$ by $
		fmt.Fprintf(&text, "\n        - %s", w.json(strings.ReplaceAll(arg, "$", "$$")))
	}
	if w.Fence != "" {
		text.WriteString("\n        env:\n        - {name: POD_UID, valueFrom: {fieldRef: {fieldPath: metadata.uid}}}")
	}
	if len(w.Ports) > 0 {
		text.WriteString("\n        ports:")
	}
	for _, port := range w.Ports {
		fmt.Fprintf(&text, "\n        - {name: %s, containerPort: %d}", port.Name, port.Number)
	}
	if w.Probes != "" {
		const probe = "\n        %sProbe:\n          httpGet: {path: /%s, port: %s, scheme: %s}"
		fmt.Fprintf(&text, probe, "liveness", "livez", w.Probes, w.ProbeScheme)
		fmt.Fprintf(&text, probe, "readiness", "readyz", w.Probes, w.ProbeScheme)
	}
	return text.String()
}

func (w *writer) addService() {
	if len(w.Ports) == 0 {
		return
	}
	var ports strings.Builder
	for _, port := range w.Ports {
		fmt.Fprintf(&ports, "\n  - {name: %[1]s, port: %[2]d, targetPort: %[1]s}", port.Name, port.Service)
	}
	w.add("apiVersion: v1\nkind: Service\n%s\nspec:\n  selector: {app.kubernetes.io/name: %s}\n  ports:%s",
		w.metadata(w.Namespace), w.text(w.Name), ports.String())
}

func (w *writer) addNetworkPolicy() {
	ingress := " []"
	if len(w.Ports) > 0 {
		var names []map[string]string
		for _, port := range w.Ports {
			names = append(names, map[string]string{"port": port.Name})
		}
		ingress = "\n  - ports: " + w.json(names)
	}
	w.add(`apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
%s
spec:
  podSelector:
    matchLabels: {app.kubernetes.io/name: %s}
  policyTypes: [Ingress]
  ingress:%s`, w.metadata(w.Namespace), w.text(w.Name), ingress)
}

func (w *writer) addServiceMonitor() {
	security := ""
	if w.Scheme == "HTTPS" {
		security += "\n    scheme: https\n    tlsConfig: {insecureSkipVerify: true}"
	}
	if w.Authorize {
		security += "\n    bearerTokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token"
	}
	w.add(`apiVersion: monitoring.coreos.com/v1
kind: ServiceMonitor
%s
spec:
  selector:
    matchLabels: {app.kubernetes.io/name: %s}
  endpoints:
  - port: http
    path: /metrics%s`, w.metadata(w.Namespace), w.text(w.Name), security)
}

func (w *writer) addAlerts() {
	var spec strings.Builder
	for line := range strings.Lines(w.Alerts) {
		spec.WriteString("  " + line)
	}
	w.add("apiVersion: monitoring.coreos.com/v1\nkind: PrometheusRule\n%s\nspec:\n%s", w.metadata(w.Namespace),
		spec.String())
}
