package conformance

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// runner sends sequences to both servers.
type runner struct {
	real, memory *server
	prefix       string // of namespaces, so that an existing cluster can be used again
	sequences    int
	operations   int
	coverage     map[count]int
	forms        map[string]int // by form of the request or the response
	masked       map[string]int // by mask
}

// newRunner returns a runner that compares the real server with memory. A list continues if any object follows, also one
// that it does not select, and objects of earlier tests exist on the real server alone: their names must be before those
// of the runner's namespaces.
func newRunner(t *testing.T, memory *server) *runner {
	t.Helper()
	return &runner{
		real: realServer(t), memory: memory, prefix: fmt.Sprintf("z%d", time.Now().UnixNano()),
		coverage: map[count]int{}, forms: map[string]int{}, masked: map[string]int{},
	}
}

// side is one server during one sequence.
type side struct {
	*server
	*names
	namespace string
	seen      map[string][]string // versions that the server has sent, by resource/name
	uids      map[string]string   // by resource/name
	first     string
	issued    string            // the latest token of a service account
	tokens    map[string]string // by resource
	listed    map[string]string // versions of lists, by resource
	watches   map[int]*openWatch
}

// run sends a sequence to both servers, and returns the first difference, or "".
func (r *runner) run(t *testing.T, ops []operation) string {
	t.Helper()
	return r.runIn(t, r.begin(t), ops)
}

// begin creates a namespace for a sequence in both servers.
func (r *runner) begin(t *testing.T) []*side {
	t.Helper()
	for _, s := range []*server{r.real, r.memory} {
		// Another test may have left a later one in one of the servers: a page that ends with the last object of a sequence has
		// a token only if there are more objects, also if the list does not select them.
		if res := s.send(t.Context(), http.MethodPost, "/api/v1/namespaces", `{"metadata":{"name":"zzz"}}`, nil); res.code != http.StatusCreated && res.code != http.StatusConflict {
			t.Fatalf("%s: create the last namespace: %d %s", s.name, res.code, res.body)
		}
	}
	r.sequences++
	namespace := fmt.Sprintf("%s-%d", r.prefix, r.sequences)
	return []*side{newSide(t, r.real, namespace), newSide(t, r.memory, namespace)}
}

// runIn is run in a namespace with the objects of an earlier sequence.
func (r *runner) runIn(t *testing.T, sides []*side, ops []operation) string {
	t.Helper()
	difference := ""
	for i, o := range ops {
		var results [2]string
		for j, s := range sides {
			results[j] = s.do(t, i, o)
		}
		r.operations++
		if code, _, _ := strings.Cut(results[0], " "); !o.watch || code != "200" {
			r.count(o, code)
		}
		r.countForms(o, results[0])
		if o.resource == "services" && strings.HasPrefix(results[0], "0 ") && strings.Contains(results[0], ": EOF") {
			r.masked[maskPanic]++
			continue
		}
		if difference = compare(results); difference != "" {
			difference = fmt.Sprintf("operation %d: %s\n%s", i, o, difference)
			break
		}
	}
	if difference == "" {
		awaitInitialEvents(sides)
	}
	for i, o := range ops {
		if !o.watch || sides[0].watches[i] == nil {
			continue
		}
		var results [2]string
		for j, s := range sides {
			results[j] = s.finishWatch(t, i, o, difference == "")
		}
		if code := errorEvent.FindStringSubmatch(results[0]); code != nil {
			r.count(o, code[1])
		} else if sides[0].watches[i].result.code == http.StatusOK {
			r.count(o, "200")
		}
		if difference != "" {
			continue
		}
		if difference = compare(results); difference != "" {
			difference = fmt.Sprintf("events of operation %d: %s\n%s", i, o, difference)
		}
	}
	for _, s := range sides {
		clear(s.watches)
	}
	for mask, n := range sides[0].masked {
		r.masked[mask] += n
	}
	r.masked[maskInitializing] += sides[0].initializing
	sides[0].initializing = 0
	r.masked[maskTemplateGeneration] += sides[1].masked[maskTemplateGeneration]
	clear(sides[0].masked)
	return difference
}

// awaitInitialEvents waits until each watch of the real server has as many events as that of the server in memory. A
// watch of Events reads its initial events from etcd after its response has begun: they would contain the last writes.
func awaitInitialEvents(sides []*side) {
	behind := func() bool {
		for i, w := range sides[0].watches {
			if memory := sides[1].watches[i]; memory != nil && len(w.events) < len(memory.events) {
				return true
			}
		}
		return false
	}
	for checks, began := 0, time.Now(); checks < 2 && time.Since(began) < maxWatchDelay; checks++ {
		for behind() && time.Since(began) < maxWatchDelay {
			time.Sleep(time.Millisecond)
		}
		time.Sleep(5 * time.Millisecond) // the events of both may be on their way
	}
}

// errorEvent matches an event of type ERROR, and its code.
var errorEvent = regexp.MustCompile(`(?s)"object": \{[^{}]*"code": (\d+),.*"type": "ERROR"`)

func (r *runner) count(o operation, code string) {
	number, _ := strconv.Atoi(code) // 0 if there was no response
	r.coverage[count{o.kind.resource, o.verb(), number}]++
}

func compare(results [2]string) string {
	if diff := cmp.Diff(strings.Split(results[0], "\n"), strings.Split(results[1], "\n")); diff != "" {
		return "(-real +memory)\n" + diff
	}
	return ""
}

// newSide creates the namespace of a sequence.
func newSide(t *testing.T, s *server, namespace string) *side {
	t.Helper()
	res := s.send(t.Context(), http.MethodPost, "/api/v1/namespaces", `{"metadata":{"name":"`+namespace+`"}}`, nil)
	if res.code != http.StatusCreated {
		t.Fatalf("%s: create a namespace: %d %s", s.name, res.code, res.body)
	}
	side := &side{
		server: s, names: newNames(), namespace: namespace, seen: map[string][]string{}, uids: map[string]string{},
		tokens: map[string]string{}, listed: map[string]string{}, watches: map[int]*openWatch{},
	}
	created := decode(res.body)
	side.first = version(created)
	side.normalize(created)
	return side
}

// resolve replaces the placeholders in a text of an operation.
func (s *side) resolve(o operation, text string) string {
	key := o.key()
	if o.method == http.MethodPost && o.name == "" {
		key = ""
	}
	latest, old := s.first, s.first
	if versions := s.seen[key]; len(versions) > 0 {
		latest = versions[len(versions)-1]
		old = versions[max(0, len(versions)-2)]
	}
	uid := s.uids[key]
	if uid == "" {
		uid = "99999999-2222-4333-8444-555555555555"
	}
	return strings.NewReplacer("$ns", s.namespace, "$rv", latest, "$old", old, "$first", s.first, "$latest", strconv.FormatUint(s.highest, 10), "$middle", s.middle(),
		"$listed", s.listedVersion(o), "$uid", uid, "$continue", s.tokens[o.resource], "$token", s.issued).Replace(text)
}

// listedVersion returns the version of the latest list of the resource of an operation.
func (s *side) listedVersion(o operation) string {
	if v := s.listed[o.resource]; v != "" {
		return v
	}
	return s.first
}

// do sends an operation, and returns the normalized response.
func (s *side) do(t *testing.T, index int, o operation) string {
	t.Helper()
	if strings.Contains(o.query, "resourceVersion=") {
		// Such a request may be answered with an older state. After a consistent list, the real server has the current one.
		consistent := o
		consistent.query, consistent.watch, consistent.header, consistent.name, consistent.subresource = "limit=1", false, nil, "", ""
		s.send(t.Context(), http.MethodGet, s.resolve(o, consistent.path()), "", nil)
	}
	path := s.resolve(o, o.path())
	if o.watch {
		w := s.server.watch(t.Context(), path, o.header)
		if strings.Contains(o.query, "$listed") {
			w.from = s.listedVersion(o)
		}
		s.watches[index] = w
		return s.text(w.result)
	}
	body, header := s.resolve(o, o.body), map[string]string{}
	for name, value := range o.header {
		header[name] = s.resolve(o, value)
	}
	if isProtobuf(o.header["Content-Type"]) {
		body = toProtobuf(body)
	}
	res := s.send(t.Context(), o.method, path, body, header)
	s.chooseVersions(o)
	s.notStored = strings.Contains(o.query+o.body, "dryRun") || o.method == http.MethodGet && o.name == "" && (strings.Contains(o.query, "resourceVersion=") || strings.Contains(o.query, "continue="))
	text := s.text(res)
	s.anyVersion, s.continued, s.notStored = false, "", false
	s.observe(o, res)
	if o.resource == definitionsResource && o.method != http.MethodGet && o.kind.alone != nil {
		text += s.settle(t, o)
	}
	return text
}

// chooseVersions tells which versions the list of an operation may have.
func (s *side) chooseVersions(o operation) {
	query, err := url.ParseQuery(o.query)
	if err != nil || o.method != http.MethodGet && o.method != http.MethodDelete || o.name != "" {
		return
	}
	version, match := query.Get("resourceVersion"), query.Get("resourceVersionMatch")
	limit, _ := strconv.Atoi(query.Get("limit"))
	limited := limit > 0 || limit == 0 && o.method == http.MethodDelete // which lists in pages
	if selector := query.Get("fieldSelector"); strings.HasPrefix(selector, "metadata.name=") && (o.namespace != "" || o.kind.clusterScoped) {
		limited = false // a list of one object
	}
	exact := match == "Exact" || match == "" && limited && strings.Trim(version, "0") != ""
	s.anyVersion = version != "" && !exact
	if strings.Contains(o.query, "$continue") {
		text, _ := base64.RawURLEncoding.DecodeString(s.tokens[o.resource])
		content, _ := decode(string(text)).(map[string]any)
		s.continued = fmt.Sprint(content["rv"])
	}
	if exact && strings.Contains(o.query, "$listed") {
		s.continued = s.listedVersion(o)
	}
}

// observe keeps the versions, uids and tokens in a response.
func (s *side) observe(o operation, res result) {
	content, _ := decode(res.body).(map[string]any) // nil for YAML
	metadata, _ := content["metadata"].(map[string]any)
	if token, ok := metadata["continue"].(string); ok && token != "" {
		s.tokens[o.resource] = token // also of a Status: for the rest of an inconsistent list
	}
	if res.code >= http.StatusBadRequest || metadata == nil {
		return
	}
	if status, ok := content["status"].(map[string]any); ok && o.subresource == "token" {
		s.issued, _ = status["token"].(string)
	}
	if _, isList := content["items"]; isList && o.method == http.MethodGet {
		s.listed[o.resource] = version(content)
	}
	name, _ := metadata["name"].(string)
	if name == "" || o.query == "dryRun=All" {
		return
	}
	if o.kind.clusterScoped {
		name = strings.Replace(name, s.namespace, "$ns", 1)
	}
	o.name = name
	key := o.key()
	if v := version(content); v != "" && !slices.Contains(s.seen[key], v) {
		versions := s.seen[key]
		if last := len(versions) - 1; last >= 0 && s.symbols[versions[last]] == s.symbols[v] {
			versions = versions[:last] // only the order of managers changed
		}
		s.seen[key] = append(versions, v)
	}
	if uid, ok := metadata["uid"].(string); ok {
		s.uids[key] = uid
	}
}

// finishWatch makes a last write that the watch must see, and returns the normalized events before it. With !wait it only
// closes the watch.
func (s *side) finishWatch(t *testing.T, index int, o operation, wait bool) string {
	t.Helper()
	w := s.watches[index]
	if !wait {
		w.cancel()
		<-w.ended
		return ""
	}
	if w.result.code == http.StatusOK {
		s.writeLast(t, index, o)
	}
	events, problem := w.stop()
	var b strings.Builder
	s.anyVersion, s.notStored, s.continued = true, true, w.from
	defer func() { s.anyVersion, s.notStored, s.continued = false, false, "" }()
	for _, e := range events {
		if isBookmark(e) {
			continue
		}
		content := decode(string(e))
		object := content.(map[string]any)["object"]
		if strings.Contains(string(e), `"MODIFIED"`) && s.aliases[version(object)] {
			s.masked[maskManagerOrder]++
			continue // only the order of managers changed
		}
		b.WriteString(s.canonical(content) + "\n")
	}
	return b.String() + problem
}

// writeLast writes to an object that the watch selects: a with the label app=web, or in a watch of namespaces, the first
// one.
func (s *side) writeLast(t *testing.T, index int, o operation) {
	t.Helper()
	target := o
	target.apiVersion = o.kind.apiVersion // of which the minimal object is
	target.query, target.subresource, target.watch = "", "", false
	target.name = "a"
	if target.namespace = "$ns"; o.kind.clusterScoped {
		target.namespace, target.name = "", "$ns-x"
	}
	metadata := fmt.Sprintf(`{"name":"%s","labels":{"app":"web","sequence":"$ns"},"annotations":{"%s":"%d"}}`, target.name, endAnnotation, index)
	header := map[string]string{"Content-Type": "application/merge-patch+json"}
	res := s.send(t.Context(), http.MethodPatch, s.resolve(target, target.path()), s.resolve(target, `{"metadata":`+metadata+`}`), header)
	if res.code == http.StatusNotFound {
		target.name = ""
		body := `{` + o.kind.typeMeta(target.apiVersion) + `"metadata":` + metadata + `}`
		if o.kind.minimal != "" {
			body = insert(body, ","+o.kind.minimal)
		}
		res = s.send(t.Context(), http.MethodPost, s.resolve(target, target.path()), s.resolve(target, body), nil)
	}
	if res.code >= http.StatusBadRequest {
		t.Errorf("%s: the last write for a watch failed: %d %s", s.name, res.code, res.body)
	}
	s.normalize(decode(res.body))
}

func decode(text string) any {
	var content any
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&content); err != nil {
		return nil
	}
	return content
}

func version(content any) string {
	object, _ := content.(map[string]any)
	metadata, _ := object["metadata"].(map[string]any)
	v, _ := metadata["resourceVersion"].(string)
	return v
}

// report logs how many operations there were of each kind, verb and code, and what was masked.
func (r *runner) report(t *testing.T) {
	t.Helper()
	lines := make([]string, 0, len(r.coverage))
	for key, n := range r.coverage {
		lines = append(lines, fmt.Sprintf("%-12s %-16s %d %6d", key.kind, key.verb, key.code, n))
	}
	slices.Sort(lines)
	t.Logf("operations:\n%s", strings.Join(lines, "\n"))
	for _, m := range masks() {
		t.Logf("mask %s, applied %d times: %s", m.name, r.masked[m.name], m.reason)
	}
}
