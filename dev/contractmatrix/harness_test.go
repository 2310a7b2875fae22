package contractmatrix

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/apiserver"
	"github.com/evenkeel-go/evenkeel/internal/apitest"
	"github.com/evenkeel-go/evenkeel/internal/testrun"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/leader"
	"github.com/evenkeel-go/evenkeel/middleware"
	"github.com/evenkeel-go/evenkeel/retry"
	"github.com/evenkeel-go/evenkeel/source"
	"github.com/evenkeel-go/evenkeel/source/poll"
)

// The kinds of a cell's API server. A controller handles Widgets. A Part belongs to the Widget with the same name.
//
//nolint:gochecknoglobals // names of kinds
var (
	group      = apitest.Version()
	widgetKind = group.WithKind("Widget")
	partKind   = group.WithKind("Part")
)

const (
	valueAnnotation = "example.com/value" // what a user wants; scenarios change it
	noteAnnotation  = "example.com/note"  // what a handler writes
	ownerLabel      = "widget"
)

// The managers that write objects.
const (
	user     = "kubectl"
	operator = "operator"
)

// The times of leases are ten times the defaults, and more: scenarios take hours of virtual time, and requests that renew
// leases took two thirds of the matrix's CPU time.
const (
	leaseDuration = 150 * time.Second
	renewDeadline = 100 * time.Second
	retryPeriod   = 40 * time.Second
)

// otherURL is the URL of the cluster with the Parts, if the configuration has two.
const otherURL = "http://b.invalid"

// cell is one test: an API server, and the processes that run a controller in a configuration.
type cell struct {
	t      *testing.T
	conf   configuration
	server *apitest.Server // of the cluster in which the controller watches Widgets, and holds its lease
	other  *apitest.Server // of the cluster with the Parts; the same one unless the configuration has two clusters

	// settings are those of the controller. A scenario may change them before start.
	settings settings
	// handler is the scenario's handler. Default: a handler that returns nil.
	handler func(ctx context.Context, run *run) error
	// gone is called by a Reconciler for a key without an object. May be nil.
	gone func(key kube.Key)

	processes []*process
	logs      lines

	mu      sync.Mutex
	former  bool              // guarded by mu; the handler is that of the time before the scenario
	runs    []*run            // guarded by mu
	outside map[string]string // guarded by mu; the values that poll.New finds
	polls   error             // guarded by mu; why polls fail
	wicked  int               // guarded by mu; counts the errors of failure

	wickedErrors []error // made once, because one of them is long
}

// settings are the fields of a controller.Config that do not depend on the type of the object.
type settings struct {
	elect            bool // run under a leader.Elector
	workers          int
	groupLimit       int
	resync           time.Duration
	debounce         time.Duration
	drain            time.Duration
	consistency      time.Duration
	stuckAfter       time.Duration
	timeout          time.Duration
	unreadyWhenStuck bool
	handleOwnWrites  bool
	retry            retry.Config
	metrics          controller.Recorder
	events           controller.EventRecorder
	predicate        informer.Predicate
	sources          []controller.Source
	deleted          func(ctx context.Context, key kube.Key, value string, stale bool) error
	tracer           middleware.Tracer
	// teardown are the names of the steps of a finalizer's teardown, and step does them. Empty: the
	// controller has no finalizer.
	teardown     []string
	step         func(ctx context.Context, p *process, key kube.Key, step string) error
	commitStatus bool // with middleware.Status; only for configurations with a Handler of whole objects
}

// run is one call of the handler.
type run struct {
	process *process
	key     kube.Key
	name    string
	uid     types.UID
	obj     kube.Object
	value   string // what the handler reads of the user's value
	note    string // what it reads of its own writes
	causes  string
	attempt int
	started time.Time
}

func (r *run) String() string { return r.name + "=" + r.value + ": " + r.causes }

// process is one process of the operator.
type process struct {
	cell    *cell
	name    string
	cluster *kube.Cluster
	other   *kube.Cluster // of the Parts
	writer  dynamic.Interface
	// otherWriter is nil unless the configuration has two clusters.
	otherWriter dynamic.Interface
	client      *client.Client
	cached      *client.Client  // reads from the process's informers
	elector     *leader.Elector // nil without leader election
	runner      runner
	neighbour   runner // shares the informers; nil unless the configuration has one
	own         reader // the controller's informer
	parts       reader // nil unless the configuration has an informer of Parts
	stop        func() error

	mu  sync.Mutex
	cut func(*http.Request) bool // guarded by mu; the requests that get lost
}

// runner is a *controller.Controller of any type.
type runner interface {
	Run(ctx context.Context) error
	Ready() error
	Explain(key kube.Key) string
	RecentRuns() []controller.RunRecord
	Stats() controller.Stats
	Problems() []controller.Problem
	AddSource(source controller.Source) (remove func(), err error)
}

// reader reads an object's annotations and uid from an informer of any type.
type reader interface {
	informer.Any
	read(key kube.Key) (obj kube.Object, found bool, err error)
	health() informer.Health
}

type readerOf[T kube.Object] struct{ *informer.Informer[T] }

func (r readerOf[T]) health() informer.Health { return r.Health() }

func (r readerOf[T]) read(key kube.Key) (kube.Object, bool, error) {
	obj, found, err := r.Get(key)
	return obj, found, err
}

func newCell(t *testing.T, conf configuration) *cell {
	t.Helper()
	newServer := func() *apitest.Server {
		return apitest.New(apitest.Widgets(), apitest.Parts(), apiserver.Leases())
	}
	x := &cell{
		t: t, conf: conf, outside: map[string]string{}, server: newServer(),
		settings: settings{resync: -1, elect: conf.handOver, debounce: conf.debounce},
	}
	x.other = x.server
	if conf.twoClusters {
		x.other = newServer()
		// Its versions are later: an informer of the first cluster never shows a version of the other one.
		x.other.Renumber(1)
		x.logs.unwanted = func(line string) {
			if strings.Contains(line, string(controller.ProblemUnseenWrite)) {
				t.Errorf("a key waited for a write to the other cluster: %s", line)
			}
		}
	}
	x.server.Hook(x.permanent)
	if conf.errors {
		x.wickedErrors = wickedErrors()
	}
	return x
}

// key returns the key of the object with this name. With combined Retrievers the objects are in two namespaces.
func (x *cell) key(name string) kube.Key {
	if !x.conf.combined {
		return kube.Key{Namespace: "ns", Name: name}
	}
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(name)) // it never fails
	return kube.Key{Namespace: fmt.Sprint("ns-", hash.Sum32()%2), Name: name}
}

// serverOf returns the API server on which the controller watches a resource.
func (x *cell) serverOf(resource string) *apitest.Server {
	if resource == "parts" {
		return x.other
	}
	return x.server
}

// carrier returns the resource of the objects with the user's value.
func (x *cell) carrier() string {
	if x.conf.parts {
		return "parts"
	}
	return "widgets"
}

// permanent is the hook of the configuration.
func (x *cell) permanent(req *http.Request, do func() *http.Response) (*http.Response, error) {
	switch {
	case x.conf.forbidden:
		return forbidNamespace(req, do)
	case x.conf.limited:
		return forbidAll(req, do)
	}
	return do(), nil
}

// put creates a Widget with a value, and its further objects in the configuration.
func (x *cell) put(name, value string) {
	x.edit("widgets", name, user, value)
	if x.conf.parts {
		x.edit("parts", name, user, value)
	}
	if x.conf.twoClusters {
		x.other.Edit("widgets", x.key(name), user, func(map[string]any) bool { return true }) // the handler writes it
	}
	if x.conf.poll {
		x.setOutside(name, value)
	}
}

func (x *cell) setOutside(name, value string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.outside[name] = value
}

// set changes the user's value of an object where the configuration stores it, which may be a Part or outside of the
// cluster.
func (x *cell) set(name, value string) {
	if x.conf.poll {
		x.setOutside(name, value)
		return
	}
	x.edit(x.carrier(), name, user, value)
}

// setOwn changes the value in the Widget itself, and thereby its generation, in every configuration.
func (x *cell) setOwn(name, value string) { x.edit("widgets", name, user, value) }

// mend changes the value where the configuration stores it and, after informers and polls show it, in the Widget
// itself, because only a change of the object itself ends a backoff. An earlier run would read the old value and fail
// again.
func (x *cell) mend(name, value string) {
	x.set(name, value)
	x.sleep(time.Minute)
	x.setOwn(name, value)
}

func (x *cell) edit(resource, name, manager, value string) {
	var widget *unstructured.Unstructured // the owner of a Part
	if resource == "parts" {
		widget = x.server.Object("widgets", x.key(name))
	}
	x.serverOf(resource).Edit(resource, x.key(name), manager, func(obj map[string]any) bool {
		meta := obj["metadata"].(map[string]any)
		annotations, ok := meta["annotations"].(map[string]any)
		if !ok {
			annotations = map[string]any{}
		}
		annotations[valueAnnotation] = value
		meta["annotations"] = annotations
		obj["spec"] = map[string]any{"value": value}
		if resource == "parts" {
			meta["labels"] = map[string]any{ownerLabel: name}
			if widget != nil {
				meta["ownerReferences"] = []any{map[string]any{
					"apiVersion": group.String(), "kind": "Widget", "name": name, "uid": string(widget.GetUID()), "controller": true,
				}}
			}
		}
		return true
	})
}

// remove deletes a Widget and its further objects.
func (x *cell) remove(name string) {
	for _, resource := range []string{"widgets", "parts"} {
		if server := x.serverOf(resource); server.Object(resource, x.key(name)) != nil {
			server.Edit(resource, x.key(name), user, func(map[string]any) bool { return false })
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.outside, name)
}

// start runs the controller in its configuration. For configurations with a history (replaced objects, hand-over), the
// history is complete when start returns: every object has failed, been terminal, been requeued or been stalled before.
// The objects' first runs of the scenario have started.
func (x *cell) start() {
	x.t.Helper()
	if x.conf.errors {
		for i := range x.wickedErrors {
			x.put(fmt.Sprint("wicked-", i), "0")
		}
	}
	if x.conf.optional != nil {
		x.server.Hook(forbidParts)
	}
	if x.conf.limited {
		x.server.Edit("widgets", kube.Key{Namespace: "ns-2", Name: "unread"}, user, func(map[string]any) bool { return true })
	}
	x.t.Cleanup(x.close)
	x.former = x.conf.replaced || x.conf.handOver
	x.processes = append(x.processes, x.launch("a"))
	for x.leadingOrNil() == nil {
		time.Sleep(time.Second) // a missing Lease is taken after a LeaseDuration
	}
	time.Sleep(2 * time.Second)
	if x.conf.handOver {
		x.processes = append(x.processes, x.launch("b"))
	}
	if x.conf.optional != nil {
		x.conf.optional(x)
	}
	if !x.former {
		synctest.Wait()
		return
	}
	time.Sleep(time.Hour)
	if x.conf.replaced {
		x.replaceAll()
	}
	if x.conf.handOver {
		x.passLeadership()
	}
	synctest.Wait()
}

// allowParts makes the API server serve Parts, which it forbade at the start.
func (x *cell) allowParts() {
	x.settle()
	x.server.Hook(nil)
	time.Sleep(30 * time.Second)
}

// endFormer ends the history: from now on, runs belong to the scenario.
func (x *cell) endFormer() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.former = false
}

// replaceAll deletes every Widget and creates another one with the same name: one half while the watches are open, the
// other half while watches are broken, so that a list shows the new objects.
func (x *cell) replaceAll() {
	x.endFormer()
	names := x.names()
	for i, name := range names {
		if i == len(names)/2 {
			x.server.HoldWatches("widgets")
		}
		x.replace(name)
	}
	x.server.Break("widgets", true)
	time.Sleep(5 * time.Second) // it lists again
}

// replace deletes a Widget and creates another one with the same name and value. If watches show the deletion, it is handled
// before: otherwise the run for it may read the new object, which then has two runs.
func (x *cell) replace(name string) {
	value := x.server.Object("widgets", x.key(name)).GetAnnotations()[valueAnnotation]
	x.server.Edit("widgets", x.key(name), user, func(map[string]any) bool { return false })
	synctest.Wait()
	x.edit("widgets", name, user, value)
}

// names returns the names of the Widgets of the scenario.
func (x *cell) names() []string {
	var names []string
	for _, text := range x.server.Keys("widgets") {
		_, name, _ := strings.Cut(text, "/")
		if !strings.HasPrefix(name, "wicked-") {
			names = append(names, name)
		}
	}
	return names
}

// passLeadership makes the leader lose its lease, and waits until the other process leads.
func (x *cell) passLeadership() {
	x.t.Helper()
	from := x.leading()
	from.lose(func(req *http.Request) bool {
		return strings.Contains(req.URL.Path, "/leases/") && req.Method != http.MethodGet
	})
	for range 4 * leaseDuration / (500 * time.Millisecond) {
		if !from.elector.Status().Leading {
			x.endFormer()
		}
		if now := x.leadingOrNil(); now != nil && now != from {
			from.lose(nil)
			time.Sleep(time.Second)
			return
		}
		time.Sleep(500 * time.Millisecond)
	}
	x.t.Fatal("nobody took over")
}

// upset injects the faults that are typical for the configuration. It changes no object.
func (x *cell) upset() {
	x.t.Helper()
	switch {
	case x.conf.handOver:
		x.passLeadership()
	case x.conf.poll:
		x.failPolls(errors.New("the registry is down"))
		time.Sleep(time.Minute)
		x.failPolls(nil)
	}
	x.server.Break("widgets", false)
	time.Sleep(5 * time.Second)
	x.serverOf(x.carrier()).Break(x.carrier(), true)
	time.Sleep(5 * time.Second)
}

func (x *cell) failPolls(err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.polls = err
}

// carrierHealth returns the health of the informer with the user's value.
func (p *process) carrierHealth() informer.Health {
	if p.cell.conf.parts {
		return p.parts.health()
	}
	return p.own.health()
}

// setCarrier changes the value of the object that stores it in the cluster; for poll.New, which stores it elsewhere,
// the value of the Widget.
func (x *cell) setCarrier(name, value string) { x.edit(x.carrier(), name, user, value) }

// sleep lets virtual time pass.
func (*cell) sleep(d time.Duration) { time.Sleep(d) }

// settle waits until all changes have been handled.
func (x *cell) settle() {
	time.Sleep(5 * time.Second)
	synctest.Wait()
}

// close ends all processes.
func (x *cell) close() {
	for _, p := range x.processes {
		if err := p.stop(); err != nil {
			x.t.Errorf("process %s: Run: %v", p.name, err)
		}
	}
}

// leading returns the leading process.
func (x *cell) leading() *process {
	x.t.Helper()
	p := x.leadingOrNil()
	if p == nil {
		x.t.Fatalf("no process leads: %+v", x.processes[0].elector.Status())
	}
	return p
}

func (x *cell) leadingOrNil() *process {
	for _, p := range x.processes {
		if p.elector == nil || p.elector.Status().Leading {
			return p
		}
	}
	return nil
}

// launch starts a process.
func (x *cell) launch(name string) *process {
	x.t.Helper()
	p := &process{cell: x, name: name}
	if err := p.connect(); err != nil {
		x.t.Fatal(err)
	}
	if p.neighbour != nil {
		testrun.Start(x.t, p.neighbour.Run)
	}
	p.run()
	if x.conf.late {
		synctest.Wait()
		if err := p.addSource(); err != nil {
			x.t.Fatal(err)
		}
	}
	return p
}

func (p *process) addSource() error {
	s, err := p.source()
	if err == nil {
		_, err = p.runner.AddSource(s)
	}
	return err
}

func (p *process) connect() (err error) {
	if p.cluster, p.writer, err = p.connectTo("http://a.invalid"); err != nil {
		return err
	}
	p.other = p.cluster
	if p.cell.conf.twoClusters {
		if p.other, p.otherWriter, err = p.connectTo(otherURL); err != nil {
			return err
		}
	}
	if p.client, err = client.New(client.Config{Cluster: p.cluster, FieldOwner: operator}); err != nil {
		return err
	}
	if p.cell.settings.elect {
		if p.elector, err = leader.New(leader.Config{
			Cluster: p.cluster, Name: "operator", Namespace: "ns", Identity: p.name,
			LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod,
		}); err != nil {
			return err
		}
	}
	if p.cell.conf.metadata {
		p.runner, err = newController(p, informer.RetrieveMetadata[*unstructured.Unstructured](p.cluster, p.cell.selection()))
	} else {
		p.runner, err = newController(p, informer.RetrieveSelected[*unstructured.Unstructured](p.cluster, p.cell.selection()))
	}
	if err == nil && p.cell.conf.added && !p.cell.conf.late {
		err = p.addSource()
	}
	return err
}

// connectTo connects the process to the API server with this URL.
func (p *process) connectTo(url string) (*kube.Cluster, dynamic.Interface, error) {
	config := p.cell.server.Config(operator)
	config.Host, config.Transport = url, p
	config.ContentType, config.AcceptContentTypes = "application/json", "application/json" // the server knows no other
	cluster, err := kube.Connect(config)
	if err == nil && p.cell.conf.limited {
		err = cluster.SetNamespaces("ns-0", "ns-1")
	}
	if err != nil {
		return nil, nil, err
	}
	writer, err := dynamic.NewForConfigAndClient(cluster.RESTConfig(), cluster.HTTPClient())
	return cluster, writer, err
}

// ready returns the error of Ready without what is true all the time in the configuration: a namespace is forbidden.
func (p *process) ready() error {
	err := p.runner.Ready()
	if err == nil || !p.cell.conf.forbidden {
		return err
	}
	lines := strings.Split(err.Error(), "\n")
	others := slices.DeleteFunc(lines, isAboutForbidden)
	if len(others) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s", err, strings.Join(others, "\n"))
}

// problems returns the problems of objects without those that are there all the time in the configuration.
func (p *process) problems() []controller.Problem {
	return slices.DeleteFunc(p.runner.Problems(), func(problem controller.Problem) bool {
		return strings.HasPrefix(problem.Key.Name, "wicked") || p.cell.conf.forbidden && isAboutForbidden(problem.Message)
	})
}

func isAboutForbidden(text string) bool { return strings.Contains(text, forbiddenNamespace) }

// selection returns the selection of the controller's informer.
func (x *cell) selection() kube.Selection {
	selection := kube.Selection{Kind: widgetKind}
	if x.conf.combined && !x.conf.limited {
		selection.Namespaces = []string{"ns-0", "ns-1"}
	}
	if x.conf.forbidden {
		selection.Namespaces = append(selection.Namespaces, forbiddenNamespace)
	}
	return selection
}

// run runs the process until stop is called, which waits for its end.
func (p *process) run() {
	ctx, cancel := context.WithCancel(p.cell.t.Context())
	done := make(chan struct{})
	var err error
	go func() { // stop waits for it
		defer close(done)
		err = p.runner.Run(ctx)
	}()
	p.stop = func() error {
		cancel()
		<-done
		return err
	}
}

// restart stops the process gracefully, and starts it again.
func (p *process) restart() {
	p.cell.t.Helper()
	if err := p.stop(); err != nil {
		p.cell.t.Errorf("process %s: Run: %v", p.name, err)
	}
	p.run()
}

// lose drops the requests of the process for which cut returns true. nil drops none.
func (p *process) lose(cut func(*http.Request) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = cut
}

// RoundTrip implements http.RoundTripper: the process's network.
func (p *process) RoundTrip(req *http.Request) (*http.Response, error) {
	p.mu.Lock()
	cut := p.cut
	p.mu.Unlock()
	if cut != nil && cut(req) {
		return nil, errors.New("no route to host")
	}
	if p.cell.conf.twoClusters && strings.HasPrefix(otherURL, "http://"+req.URL.Host) {
		return p.cell.other.RoundTrip(req)
	}
	return p.cell.server.RoundTrip(req)
}

func (x *cell) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(&x.logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// newController makes the controller of a process.
func newController[T kube.Object](p *process, retriever informer.Retriever[T]) (runner, error) {
	x, s := p.cell, p.cell.settings
	c := controller.Config[T]{
		Name: "widgets", Workers: s.workers, ResyncInterval: s.resync,
		Queue: controller.QueueConfig{GroupLimit: s.groupLimit, Debounce: s.debounce},
		Runs: controller.RunsConfig{
			DrainTimeout: s.drain, HandleOwnWrites: s.handleOwnWrites, ConsistencyTimeout: s.consistency,
			StuckAfter: s.stuckAfter, UnreadyWhenStuck: s.unreadyWhenStuck,
		},
		Timeout: s.timeout,
		Retry:   s.retry,
		Metrics: s.metrics, Events: s.events, Predicate: s.predicate, Sources: slices.Clone(s.sources), Logger: x.logger(),
	}
	if p.elector != nil {
		c.LeaderElector = p.elector
	}
	if s.deleted != nil {
		c.Deleted = func(ctx context.Context, last T, stale bool) error {
			return s.deleted(ctx, kube.KeyOf(last), last.GetAnnotations()[valueAnnotation], stale)
		}
	}
	objects := informer.Config[T]{Name: "widgets", Retriever: retriever, Logger: x.logger()}
	if x.conf.transform {
		objects.Transform = func(obj T) error {
			labels := maps.Clone(obj.GetLabels())
			if labels == nil {
				labels = map[string]string{}
			}
			labels["transformed"] = "yes"
			obj.SetLabels(labels)
			return nil
		}
	}
	create := informer.New[T]
	if x.conf.shared {
		create = informer.Shared[T]
	}
	own, err := create(objects)
	if err != nil {
		return nil, err
	}
	p.own = readerOf[T]{own}
	if x.conf.shared {
		if err := share(p, objects); err != nil {
			return nil, err
		}
	}
	if x.conf.parts {
		source, err := p.source()
		if err != nil {
			return nil, err
		}
		switch {
		case x.conf.late:
		case x.conf.added:
			c.Reads = append(c.Reads, p.parts)
		default:
			c.Sources = append(c.Sources, source)
		}
	}
	if x.conf.poll {
		c.Sources = append(c.Sources, p.pollSource())
	}
	if err := p.connectCached(own); err != nil {
		return nil, err
	}
	finalizer, err := teardown[T](p)
	if err != nil {
		return nil, err
	}
	handler := func(ctx context.Context, obj T) error { return p.handle(ctx, obj) }
	reconciler := func(ctx context.Context, key kube.Key) error {
		obj, found, err := own.Get(key)
		if err != nil {
			return err
		}
		if !found {
			if x.gone != nil {
				x.gone(key)
			}
			return nil
		}
		if finalizer != nil {
			return middleware.Finalizer(finalizer, middleware.FinalizerOptions[T]{})(handler)(ctx, obj)
		}
		return p.handle(ctx, obj)
	}
	switch {
	case x.conf.noObject:
		return newControllerOfNoObject(p, c, source.Mapped(own, func(obj T) []kube.Key {
			return []kube.Key{controller.EncodeKey(types.NamespacedName(kube.KeyOf(obj)))}
		}), reconciler)
	case x.conf.reconciler:
		c.Informer = own
		c.Reconciler = reconciler
		if s.tracer != nil {
			c.Reconciler = middleware.Trace[kube.Key](s.tracer)(c.Reconciler)
		}
	default:
		c.Informer = own
		c.Handler = handler
		if s.tracer != nil {
			c.Handler = controller.Chain(c.Handler, middleware.Trace[T](s.tracer))
		}
		if finalizer != nil {
			c.Handler = controller.Chain(c.Handler, middleware.Finalizer(finalizer, middleware.FinalizerOptions[T]{}))
		}
		if s.commitStatus {
			c.Handler = controller.Chain(c.Handler, middleware.Status(p.client, middleware.StatusOptions[T]{}))
		}
	}
	return controller.New(c)
}

// share makes the controller that shares the informers of the process.
func share[T kube.Object](p *process, objects informer.Config[T]) error {
	own, err := informer.Shared(objects)
	if err != nil {
		return err
	}
	parts, err := p.source()
	if err != nil {
		return err
	}
	p.neighbour, err = controller.New(controller.Config[T]{
		Name: "neighbour", Informer: own, Sources: []controller.Source{parts}, ResyncInterval: -1,
		Logger: slog.New(slog.DiscardHandler), Handler: func(context.Context, T) error { return nil },
	})
	return err
}

// newControllerOfNoObject makes the controller of a process without a primary kind, with the settings of c.
func newControllerOfNoObject[T kube.Object](p *process, c controller.Config[T], widgets controller.Source, reconciler controller.Reconciler) (runner, error) {
	handler := func(ctx context.Context, key types.NamespacedName) error { return reconciler(ctx, kube.Key(key)) }
	if tracer := p.cell.settings.tracer; tracer != nil {
		handler = controller.Chain(handler, middleware.Trace[types.NamespacedName](tracer))
	}
	return controller.New(controller.Config[controller.NoObject]{
		Name: c.Name, Workers: c.Workers, ResyncInterval: c.ResyncInterval, Queue: c.Queue, Runs: c.Runs,
		Timeout: c.Timeout, Retry: c.Retry, Metrics: c.Metrics,
		Sources: append(c.Sources, widgets), Logger: c.Logger, LeaderElector: c.LeaderElector,
		Reconciler: controller.KeyHandler(handler),
	})
}

// source is the configuration's source of Parts.
func (p *process) source() (controller.Source, error) {
	selection := kube.Selection{Kind: partKind}
	if p.parts == nil && p.cell.conf.metadataParts {
		parts, err := informer.New(informer.Config[*metav1.PartialObjectMetadata]{
			Name: "parts", Optional: p.cell.conf.optional != nil, Logger: p.cell.logger(),
			Retriever: informer.RetrieveMetadata[*unstructured.Unstructured](p.other, selection),
		})
		if err != nil {
			return nil, err
		}
		p.parts = readerOf[*metav1.PartialObjectMetadata]{parts}
	}
	if p.parts == nil {
		create := informer.New[*unstructured.Unstructured]
		if p.cell.conf.shared {
			create = informer.Shared[*unstructured.Unstructured]
		}
		parts, err := create(informer.Config[*unstructured.Unstructured]{
			Name: "parts", Optional: p.cell.conf.optional != nil, Logger: p.cell.logger(),
			Retriever: informer.RetrieveSelected[*unstructured.Unstructured](p.other, selection),
		})
		if err != nil {
			return nil, err
		}
		p.parts = readerOf[*unstructured.Unstructured]{parts}
	}
	switch parts := p.parts.(type) {
	case readerOf[*metav1.PartialObjectMetadata]:
		return p.cell.conf.metadataSource(parts.Informer), nil
	case readerOf[*unstructured.Unstructured]:
		return p.cell.conf.source(parts.Informer), nil
	}
	return nil, fmt.Errorf("no source for %T", p.parts)
}

// pollSource polls the values outside of the cluster.
func (p *process) pollSource() controller.Source {
	x := p.cell
	return poll.New(poll.Config{
		Name: "registry", Interval: time.Second, MaxBackoff: time.Second, Jitter: -1,
		Poller: poll.List(func(context.Context) ([]poll.Item, error) {
			x.mu.Lock()
			defer x.mu.Unlock()
			if x.polls != nil {
				return nil, x.polls
			}
			var items []poll.Item
			for name, value := range x.outside {
				items = append(items, poll.Item{ID: name, Version: value, Keys: []kube.Key{x.key(name)}})
			}
			return items, nil
		}),
	})
}

// handle is the handler of a process.
func (p *process) handle(ctx context.Context, obj kube.Object) error {
	x := p.cell
	info, ok := controller.RunFrom(ctx)
	if !ok {
		x.t.Error("the handler's context has no run")
	}
	r := &run{
		process: p, key: kube.KeyOf(obj), name: obj.GetName(), uid: obj.GetUID(), obj: obj,
		causes: info.Causes.String(), attempt: info.Attempt, started: time.Now(),
	}
	var number int
	if _, err := fmt.Sscanf(r.name, "wicked-%d", &number); err == nil {
		return x.wickedErrors[number]
	}
	carrier := obj
	if x.conf.parts {
		part, found, err := p.parts.read(r.key)
		if err != nil {
			return err
		}
		if found {
			carrier = part
		} else {
			carrier = &unstructured.Unstructured{Object: map[string]any{}}
		}
	}
	r.value, r.note = carrier.GetAnnotations()[valueAnnotation], carrier.GetAnnotations()[noteAnnotation]
	x.mu.Lock()
	former := x.former
	if x.conf.poll {
		r.value = x.outside[r.name]
	}
	if !former {
		x.runs = append(x.runs, r)
	}
	x.mu.Unlock()
	if former {
		return formerRun(ctx, r)
	}
	if x.handler == nil {
		return nil
	}
	return x.handler(ctx, r)
}

// formerRun is the handler of the history. It leaves a state for each object that its successor must not inherit.
func formerRun(ctx context.Context, r *run) error {
	if err := controller.SetTimer(ctx, "former", 90*time.Minute); err != nil {
		return err
	}
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(r.name)) // it never fails
	switch hash.Sum32() % 4 {
	case 0:
		return errors.New("it always failed")
	case 1:
		return controller.Terminal(errors.New("it failed for good"))
	case 2:
		return controller.RequeueAfter(3*time.Hour, "it was to come much later")
	default:
		return nil
	}
}

// write writes the handler's note, with the run's context.
func (r *run) write(ctx context.Context, note string) error {
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, noteAnnotation, note)
	if other := r.process.otherWriter; other != nil {
		// A kind that the controller watches in the first cluster. Its informer never shows this write.
		widgets := other.Resource(group.WithResource("widgets")).Namespace(r.key.Namespace)
		if _, err := widgets.Patch(ctx, r.name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			return err
		}
	}
	return r.patch(ctx, r.process.cell.carrier(), r.name, patch)
}

// patch sends a merge patch, with the run's context.
func (r *run) patch(ctx context.Context, resource, name, patch string, subresources ...string) error {
	_, err := r.objects(resource).Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, subresources...)
	return err
}

func (r *run) objects(resource string) dynamic.ResourceInterface {
	writer := r.process.writer
	if resource == "parts" && r.process.otherWriter != nil {
		writer = r.process.otherWriter
	}
	return writer.Resource(group.WithResource(resource)).Namespace(r.key.Namespace)
}

// take returns the runs since the last take, oldest first.
func (x *cell) take() []*run {
	x.mu.Lock()
	defer x.mu.Unlock()
	runs := x.runs
	x.runs = nil
	return runs
}

// of returns the runs of an object.
func of(runs []*run, name string) []*run {
	return slices.DeleteFunc(slices.Clone(runs), func(r *run) bool { return r.name != name })
}

// failure returns an error. In the configuration with misbehaving errors it returns another one of them at each call.
func (x *cell) failure() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.conf.errors {
		return errors.New("no luck")
	}
	x.wicked++
	return x.wickedErrors[x.wicked%len(x.wickedErrors)]
}

// pause sleeps, unless ctx ends before.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// lines collects lines of text. It is safe for concurrent use.
type lines struct {
	mu       sync.Mutex
	lines    []string
	unwanted func(line string) // gets each line that is logged. May be nil
}

func (l *lines) add(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, fmt.Sprintf(format, args...))
}

func (l *lines) Write(p []byte) (int, error) {
	line := strings.TrimSuffix(string(p), "\n")
	l.add("%s", line)
	if l.unwanted != nil {
		l.unwanted(line)
	}
	return len(p), nil
}

// take returns the lines since the last take.
func (l *lines) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	taken := l.lines
	l.lines = nil
	return taken
}

// with returns the lines that contain all texts.
func with(all []string, texts ...string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(line string) bool {
		return slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(line, text) })
	})
}
