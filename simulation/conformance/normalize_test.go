package conformance

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// names renames the values that a server chooses: by the order in which they first appear.
type names struct {
	symbols map[string]string // by value
	counts  map[string]int    // symbols of each kind
	highest uint64            // version of an object that was sent
	values  map[string]string // the latest version with a symbol, by symbol
	last    map[string]stored // by uid
	aliases map[string]bool   // versions where only the order of managers changed
	masked  map[string]int
	// anyVersion is true while a list may have any version that the server chooses.
	anyVersion bool
	// notStored is true for objects that are not the latest stored ones: results of dry runs, and events.
	notStored bool
	// continued is the version in the token of a list that is continued, or of an earlier list that is read or watched from.
	continued string
}

// stored is an object as the server sent it last.
type stored struct{ version, content, managed string }

func newNames() *names {
	return &names{values: map[string]string{}, symbols: map[string]string{}, counts: map[string]int{}, last: map[string]stored{}, aliases: map[string]bool{}, masked: map[string]int{}}
}

func (n *names) symbol(kind, value string) string {
	if n.symbols[value] == "" {
		n.counts[kind]++
		n.symbols[value] = fmt.Sprintf("<%s%d>", kind, n.counts[kind])
	}
	return n.symbols[value]
}

// text returns the normalized form of a response.
func (n *names) text(res result) string {
	text := fmt.Sprintf("%d %s\n", res.code, res.media)
	warnings := res.warnings
	if len(warnings) > 0 && (res.code == http.StatusNotFound || res.code == http.StatusConflict) {
		n.masked[maskStaleWarnings]++
		warnings = nil
	}
	for _, warning := range warnings {
		text += "Warning: " + n.message(warning) + "\n"
	}
	content := decode(res.body)
	switch res.media {
	case "application/yaml":
		if converted, err := yaml.YAMLToJSON([]byte(res.body)); err == nil {
			content = decode(string(converted))
		}
	case runtime.ContentTypeProtobuf:
		content = fromProtobuf([]byte(res.body))
	}
	if content == nil {
		return text + res.body
	}
	return text + n.canonical(content)
}

// canonical returns the normalized JSON of a value.
func (n *names) canonical(content any) string {
	text, err := json.MarshalIndent(n.normalize(content), "", " ")
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// normalize renames the values in an object, a list, a Status or a watch event.
func (n *names) normalize(content any) any {
	object, ok := content.(map[string]any)
	if !ok {
		return content
	}
	if _, isList := object["items"]; isList {
		items, _ := object["items"].([]any)
		for i := range items {
			items[i] = n.normalize(items[i])
		}
		n.listMetadata(object)
		return object
	}
	if resources, ok := object["resources"].([]any); ok { // of discovery, in random order in the real server
		for _, resource := range resources { // the server in memory has no hashes of storage versions
			delete(resource.(map[string]any), "storageVersionHash")
		}
		slices.SortFunc(resources, func(a, b any) int { return strings.Compare(mustJSON(a), mustJSON(b)) })
	}
	n.aliasVersion(object)
	n.templateGeneration(object)
	n.sortErrors(object)
	for _, key := range slices.Sorted(maps.Keys(object)) {
		value := object[key]
		switch key {
		case "metadata":
			n.metadata(value)
		case "object":
			object[key] = n.normalize(value)
		case "message":
			if text, ok := value.(string); ok {
				object[key] = n.message(text)
			}
		case "details":
			n.details(value)
		case "spec", "status":
			n.allocated(value)
			n.claims(value)
			if spec, ok := value.(map[string]any); ok && object["kind"] == "CertificateSigningRequest" && key == "spec" {
				for _, name := range []string{"username", "groups", "uid", "extra"} { // the server in memory has no users
					delete(spec, name)
				}
			}
			object[key] = n.inside(value)
		}
	}
	return object
}

// inside renames the uids, the generated names and the times of transitions in a value.
func (n *names) inside(value any) any {
	switch v := value.(type) {
	case string:
		v = uuids.ReplaceAllStringFunc(v, func(uid string) string { return n.symbol("uid", uid) })
		return generated.ReplaceAllStringFunc(v, func(name string) string { return n.symbol("name", name) })
	case []any:
		for i := range v {
			v[i] = n.inside(v[i])
		}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			if v[key] = n.inside(v[key]); (key == "lastTransitionTime" || key == "lastUpdateTime") && v[key] != nil {
				v[key] = "<time>"
			}
			if pods, ok := v[key].(map[string]any); ok && key == "disruptedPods" {
				for name, at := range pods {
					if at != "2020-01-01T00:00:00Z" { // which is requested
						pods[name] = "<time>"
					}
				}
			}
		}
	}
	return value
}

// templateGeneration removes the annotation of a DaemonSet from a PartialObjectMetadata.
func (n *names) templateGeneration(object map[string]any) {
	m, _ := object["metadata"].(map[string]any)
	annotations, _ := m["annotations"].(map[string]any)
	const key = "deprecated.daemonset.template.generation"
	if annotations[key] == nil || object["spec"] != nil {
		return
	}
	n.masked[maskTemplateGeneration]++
	if delete(annotations, key); len(annotations) == 0 {
		delete(m, "annotations")
	}
}

// aliasVersion gives a version the symbol of the one before, if only the times and the order of managers changed.
func (n *names) aliasVersion(object map[string]any) {
	m, ok := object["metadata"].(map[string]any)
	if !ok || m["managedFields"] == nil {
		return
	}
	if m["resourceVersion"] == nil || object["kind"] == "PartialObjectMetadata" || n.notStored {
		return
	}
	content, metadata := maps.Clone(object), maps.Clone(m)
	delete(content, "kind")
	delete(content, "apiVersion") // which items of lists do not have
	delete(metadata, "managedFields")
	delete(metadata, "resourceVersion")
	content["metadata"] = metadata
	now := stored{fmt.Sprint(m["resourceVersion"]), mustJSON(content), mustJSON(sortManagers(m["managedFields"]))}
	uid := fmt.Sprint(m["uid"])
	before, seen := n.last[uid]
	if seen && n.symbols[before.version] != "" && n.symbols[now.version] == "" && before.content == now.content && before.managed == now.managed {
		n.symbols[now.version] = n.symbols[before.version]
		n.values[n.symbols[now.version]] = now.version
		n.aliases[now.version] = true
		n.masked[maskManagerOrder]++
	}
	n.last[uid] = now
}

func mustJSON(content any) string {
	text, err := json.Marshal(content)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

func (n *names) metadata(value any) {
	m, ok := value.(map[string]any)
	if !ok {
		return
	}
	if finalizers, ok := m["finalizers"].([]any); ok && m["namespace"] == nil && len(finalizers) > 1 {
		n.masked[maskNamespaceFinalizers]++
		slices.SortFunc(finalizers, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	}
	if managed, ok := m["managedFields"]; ok {
		n.terminationTime(managed)
		m["managedFields"] = sortManagers(managed)
	}
	if annotations, ok := m["annotations"].(map[string]any); ok && annotations["k8s.io/initial-events-end"] != nil {
		n.masked[maskListVersion]++
		m["resourceVersion"] = n.listVersion(m["resourceVersion"])
		return
	}
	if labels, ok := m["labels"]; ok {
		m["labels"] = n.inside(labels)
	}
	for _, key := range slices.Sorted(maps.Keys(m)) {
		text, ok := m[key].(string)
		if !ok {
			continue
		}
		switch key {
		case "continue": // of the Status of an expired list
			m[key] = n.token(text)
		case "uid":
			m[key] = n.symbol("uid", text)
		case "resourceVersion":
			m[key] = n.version(text)
		case "creationTimestamp", "deletionTimestamp":
			m[key] = "<time>"
		case "name":
			m[key] = n.message(text)
		}
	}
}

// terminationTime removes the time of a definition's condition Terminating from its managed fields.
func (n *names) terminationTime(managed any) {
	entries, _ := managed.([]any)
	for _, entry := range entries {
		value := entry
		for _, key := range []string{"fieldsV1", "f:status", "f:conditions", `k:{"type":"Terminating"}`} {
			fields, _ := value.(map[string]any)
			value = fields[key]
		}
		if condition, ok := value.(map[string]any); ok && condition["f:lastTransitionTime"] != nil {
			n.masked[maskTerminationTime]++
			delete(condition, "f:lastTransitionTime")
		}
	}
}

// allocated renames the addresses and ports that the servers choose for a Service.
func (n *names) allocated(value any) {
	spec, ok := value.(map[string]any)
	if !ok {
		return
	}
	port := func(object map[string]any, key string) {
		const lastRequested = 30085 // higher ones are only chosen by servers
		if number, ok := object[key].(json.Number); ok && len(number) == 5 && number.String() > strconv.Itoa(lastRequested) {
			object[key] = n.symbol("port", number.String())
		}
	}
	if spec["type"] == "ExternalName" && spec["internalTrafficPolicy"] != nil {
		n.masked[maskInternalTraffic]++
		delete(spec, "internalTrafficPolicy")
	}
	port(spec, "healthCheckNodePort")
	if ip, ok := spec["clusterIP"].(string); ok {
		spec["clusterIP"] = n.message(ip)
	}
	if ips, ok := spec["clusterIPs"].([]any); ok {
		for i, ip := range ips {
			ips[i] = n.message(fmt.Sprint(ip))
		}
	}
	if ports, ok := spec["ports"].([]any); ok {
		for _, p := range ports {
			if object, ok := p.(map[string]any); ok {
				port(object, "nodePort")
			}
		}
	}
}

// sortManagers returns managed fields without their times, in an order that does not depend on times.
func sortManagers(managed any) any {
	entries, _ := managed.([]any)
	sorted := make([]any, len(entries))
	for i, entry := range entries {
		fields, ok := entry.(map[string]any)
		if sorted[i] = entry; ok {
			fields = maps.Clone(fields)
			if fields["time"] != nil {
				fields["time"] = "<time>"
			}
			sorted[i] = fields
		}
	}
	slices.SortFunc(sorted, func(a, b any) int { return strings.Compare(mustJSON(a), mustJSON(b)) })
	return sorted
}

func (n *names) version(text string) string {
	if v, err := strconv.ParseUint(text, 10, 64); err == nil && text != futureVersion {
		n.highest = max(n.highest, v)
	}
	symbol := n.symbol("version", text)
	if n.values[symbol] == "" {
		n.values[symbol] = text
	}
	return symbol
}

// futureVersion is a version that does not exist yet.
const futureVersion = "999999999"

// middle returns a version between the first one and the highest. It is the same state in both servers.
func (n *names) middle() string {
	return n.values[fmt.Sprintf("<version%d>", (n.counts["version"]+1)/2)]
}

// listVersion returns one symbol for all versions that are not older than those that were sent.
func (n *names) listVersion(value any) any {
	text, ok := value.(string)
	if !ok {
		return value
	}
	if text == n.continued {
		return "<continued version>"
	}
	if v, err := strconv.ParseUint(text, 10, 64); err == nil && (v >= n.highest || n.anyVersion) {
		return "<list version>"
	}
	return n.symbol("version", text)
}

func (n *names) listMetadata(list map[string]any) {
	m, ok := list["metadata"].(map[string]any)
	if !ok {
		return
	}
	if m["resourceVersion"] != nil {
		m["resourceVersion"] = n.listVersion(m["resourceVersion"])
		n.masked[maskListVersion]++
	}
	if token, ok := m["continue"].(string); ok && token != "" {
		m["continue"] = n.token(token)
	}
}

// token returns the normalized content of a continue token.
func (n *names) token(token string) string {
	text, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		return token
	}
	content, _ := decode(string(text)).(map[string]any)
	if number, ok := content["rv"].(json.Number); ok {
		content["rv"] = n.listVersion(number.String())
	}
	if start, ok := content["start"].(string); ok {
		content["start"] = n.message(start)
	}
	return n.canonical(content)
}

// sortErrors sorts the errors of an object that has a schema, those of the keys of a ConfigMap or Secret, and those of the
// stored versions of a definition.
func (n *names) sortErrors(status map[string]any) {
	details, _ := status["details"].(map[string]any)
	causes, _ := details["causes"].([]any)
	random := func(cause any) bool {
		fields, _ := cause.(map[string]any)
		return details["kind"] == "Gadget" || strings.HasPrefix(fmt.Sprint(fields["field"]), "data[") || strings.HasPrefix(fmt.Sprint(fields["field"]), "status.storedVersions[")
	}
	first := slices.IndexFunc(causes, random)
	if first < 0 {
		return
	}
	last := first
	for last < len(causes) && random(causes[last]) {
		last++
	}
	if last-first < 2 {
		return
	}
	n.masked[maskErrorOrder]++
	slices.SortFunc(causes[first:last], func(a, b any) int { return strings.Compare(mustJSON(a), mustJSON(b)) })
	if before, _, found := strings.Cut(fmt.Sprint(status["message"]), " is invalid: ["); found {
		status["message"] = before + " is invalid: <causes>"
	}
}

func (n *names) details(value any) {
	details, ok := value.(map[string]any)
	if !ok {
		return
	}
	for _, key := range []string{"name", "uid"} {
		if text, ok := details[key].(string); ok {
			details[key] = n.message(text)
		}
	}
	causes, _ := details["causes"].([]any)
	if len(causes) > 1 && strings.Contains(mustJSON(causes[0]), "FieldManagerConflict") {
		n.masked[maskConflictOrder]++
		slices.SortFunc(causes, func(a, b any) int { return strings.Compare(mustJSON(a), mustJSON(b)) })
	}
	for _, cause := range causes {
		if c, ok := cause.(map[string]any); ok {
			text := fmt.Sprint(c["message"])
			if c["field"] == "patch" {
				text = strings.TrimPrefix(n.message("patch: "+text), "patch: ")
			}
			c["message"] = n.message(text)
		}
	}
}

var (
	uuids     = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	generated = regexp.MustCompile(`gen-\d+-[a-z0-9]{5}\b`)
	numbers   = regexp.MustCompile(`\d+$`)
	versions  = regexp.MustCompile(`(?i)resource ?version("?: ?"|[^0-9"]{0,40})\d+`)            // not all numbers: a version can be equal to any number
	addresses = regexp.MustCompile(`\b10\.96\.[1-9]\d*\.\d+\b`)                                 // those in 10.96.0.0/24 are requested
	duplicate = regexp.MustCompile(`(Duplicate value: |duplicate nodePort: \{[A-Z]+ )3\d{4}\b`) // a node port that the server has chosen
	times     = regexp.MustCompile(`\b20\d\d-\d\d-\d\d[T ]\d\d:\d\d:\d\d(Z| \+0000 UTC)?`)
	invalid   = regexp.MustCompile(`(?s)(failed to create typed patch object \(.*?\)):.*(errors:|field not declared in schema).*`)
	tooOld    = regexp.MustCompile(`too old resource version: (\d+) \((\d+)\)`)
	tooLarge  = regexp.MustCompile(`(?i)(too large resource version: \d+, current: )\d+`)
	undefined = regexp.MustCompile(`^(failed to convert new object: )?\.spec\.\w+: field not declared in schema$`)
	patched   = regexp.MustCompile(`(?s)patch: Invalid value: "(\{.*\}(\\n)?|map\[.*\])": `)
)

// message renames the values in a text.
func (n *names) message(text string) string {
	if patched.MatchString(text) {
		n.masked[maskPatchedObject]++
		text = patched.ReplaceAllString(text, "patch: Invalid value: <object>: ")
	}
	if invalid.MatchString(text) {
		n.masked[maskSchemaErrors]++
		text = invalid.ReplaceAllString(text, "$1: <errors>")
	}
	if tooOld.MatchString(text) || tooLarge.MatchString(text) {
		n.masked[maskListVersion]++
		text = tooOld.ReplaceAllString(text, "too old resource version: $1 (<list version>)")
		text = tooLarge.ReplaceAllString(text, "${1}<list version>")
	}
	if undefined.MatchString(text) {
		n.masked[maskSchemaErrors]++
		text = "<field>: field not declared in schema"
	}
	if n.continued != "" {
		text = strings.ReplaceAll(text, "resource version: "+n.continued+" ", "resource version: <continued version> ")
	}
	text = times.ReplaceAllString(text, "<time>")
	text = uuids.ReplaceAllStringFunc(text, func(uid string) string { return n.symbol("uid", uid) })
	text = duplicate.ReplaceAllString(text, "$1<port>")
	text = addresses.ReplaceAllStringFunc(text, func(ip string) string { return n.symbol("address", ip) })
	text = generated.ReplaceAllStringFunc(text, func(name string) string { return n.symbol("name", name) })
	return versions.ReplaceAllStringFunc(text, func(found string) string {
		number := numbers.FindString(found)
		return strings.TrimSuffix(found, number) + n.version(number)
	})
}
