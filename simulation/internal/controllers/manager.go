package controllers

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/internal/apiserver"
)

// Config configures a Manager.
type Config struct {
	// Server is the API server whose objects are controlled. Required.
	Server *apiserver.Server
	// Transport sends the requests. Default: Server.Transport().
	Transport http.RoundTripper
	// Pods returns what happens to a Pod. It is called when the Pod is scheduled, and when its containers start. It
	// must not make requests. Default: all Pods have the zero PodBehavior.
	Pods func(*corev1.Pod) PodBehavior
	// Nodes are the names of the nodes that have Pods. There need not be Node objects. Default: node-0 and node-1.
	Nodes []string
}

// Manager runs the models of a cluster's controllers. Create it with New, in the bubble of testing/synctest in which it
// is used. Step and Run must be called by one goroutine at a time.
type Manager struct {
	server      *apiserver.Server
	transport   http.RoundTripper
	pods        func(*corev1.Pod) PodBehavior
	nodes       []string
	controllers []controller
	// changed has room for one value, which is there if tasks were added.
	changed chan struct{}

	mu    sync.Mutex
	queue queue // guarded by mu
	// kinds are the served kinds that state was made for. Guarded by mu.
	kinds []*apiserver.Kind
	state state // guarded by mu
	// loading is true while objects are listed. Then removed has the uids of objects that were deleted since it began.
	loading bool               // guarded by mu
	removed map[types.UID]bool // guarded by mu
	// observed is the version of the latest write in state.
	observed uint64 // guarded by mu
}

// controller is the model of a controller. Its methods are called by one goroutine at a time.
type controller interface {
	fmt.Stringer // its name
	// observe adds tasks after a change. Manager.mu is held.
	observe(add func(key string, due time.Time), now time.Time, c apiserver.Change)
	// sync works on an object. It returns the time at which it has to do so again; zero: after the next change.
	sync(ctx context.Context, key string) (nextSync time.Time, err error)
}

// Indexes in Manager.controllers.
const (
	collectorIndex = 0
	contentIndex   = 1
)

// Task is work that a controller has to do.
type Task struct {
	Controller, Key string
	Due             time.Time
}

// New returns a Manager for the objects of a server.
func New(config Config) *Manager {
	m := &Manager{
		server: config.Server, transport: config.Transport, pods: config.Pods, nodes: config.Nodes,
		changed: make(chan struct{}, 1),
	}
	if len(m.nodes) == 0 {
		m.nodes = []string{"node-0", "node-1"}
	}
	if m.transport == nil {
		m.transport = config.Server.Transport()
	}
	m.controllers = []controller{
		collectorIndex: &garbageCollector{m, m.requester(managerAgent("generic-garbage-collector"))},
		contentIndex: &namespaceContent{
			m, m.requester(managerAgent("service-account-controller")),
			m.requester(managerAgent("root-ca-certificate-publisher")),
		},
		&namespaces{m, m.requester(managerAgent("namespace-controller"))},
		// Before those that replace Pods: a Pod of a StatefulSet has the name of its predecessor.
		&budgets{m, m.requester(managerAgent("disruption-controller"))},
		&scheduler{m, m.requester("kube-scheduler/v1.36.3 (linux/amd64) kubernetes/simulation/scheduler")},
		&kubelet{
			Manager: m, requests: m.requester("kubelet/v1.36.3 (linux/amd64) kubernetes/simulation"),
			runs: map[types.UID]*podRun{},
		},
		&podCollector{m, m.requester(managerAgent("pod-garbage-collector"))},
		&replicaSets{m, m.requester(managerAgent("replicaset-controller"))},
		&jobs{
			Manager: m, requests: m.requester(managerAgent("job-controller")),
			deleter:  m.requester(managerAgent("ttl-after-finished-controller")),
			backoffs: map[types.UID]podBackoff{},
		},
		&deployments{m, m.requester(managerAgent("deployment-controller"))},
		&statefulSets{m, m.requester(managerAgent("statefulset-controller"))},
		&volumeBinder{m, m.requester(managerAgent("persistent-volume-binder"))},
		&endpointSlices{services{m, m.requester(managerAgent("endpointslice-controller"))}},
		&endpoints{services{m, m.requester(managerAgent("endpoint-controller"))}},
		&staleDisruptions{m, m.requester(managerAgent("disruption-controller"))},
	}
	m.server.Observe(m.observe)
	m.observed = m.latest()
	return m
}

func (m *Manager) requester(userAgent string) *requester {
	return &requester{transport: m.transport, userAgent: userAgent, written: m.catchUp}
}

// Step does the work that is due first, if it is due, and reports whether there was any. next is when the next work is
// due, as far as is known: now, if worked is true; zero if nothing is due before another client changes an object. The
// error is that of ctx: failing work is repeated later, and is not an error.
func (m *Manager) Step(ctx context.Context) (next time.Time, worked bool, err error) {
	m.load()
	m.catchUp(ctx)
	m.mu.Lock()
	first, exists := m.queue.first()
	now := time.Now()
	if !exists || first.due.After(now) {
		m.mu.Unlock()
		return first.due, false, nil
	}
	m.queue.remove(first.task)
	m.mu.Unlock()

	nextSync, err := m.controllers[first.controller].sync(ctx, first.key)

	m.mu.Lock()
	defer m.mu.Unlock()
	if ctx.Err() != nil {
		m.queue.add(first.task, now)
		return now, false, ctx.Err()
	}
	m.queue.done(first.task, now, err)
	if err == nil && !nextSync.IsZero() {
		m.queue.add(first.task, nextSync)
	}
	return now, true, nil
}

// Run does all work when it is due, until ctx ends.
func (m *Manager) Run(ctx context.Context) error {
	for {
		next, worked, err := m.Step(ctx)
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // the error is that of ctx
		case err != nil:
			return err
		case worked:
			continue
		}
		var due <-chan time.Time
		stop := func() bool { return true }
		if !next.IsZero() {
			timer := time.NewTimer(time.Until(next))
			due, stop = timer.C, timer.Stop
		}
		select {
		case <-ctx.Done():
		case <-due:
		case <-m.changed:
		}
		stop()
	}
}

// latest returns the version of the latest write.
func (m *Manager) latest() uint64 {
	n, _ := strconv.ParseUint(m.server.Version(), 10, 64)
	return n
}

// catchUp waits until all writes that the server has committed are observed: the goroutine of another request may still
// have to report them. Without it a controller could create an object twice.
func (m *Manager) catchUp(ctx context.Context) {
	for latest := m.latest(); ; {
		m.mu.Lock()
		observed := m.observed
		m.mu.Unlock()
		if observed >= latest {
			return
		}
		select {
		case <-m.changed:
		case <-ctx.Done():
			return
		}
	}
}

// Reload makes the next Step list all objects, after apiserver.Server.Restore. Work that was due is forgotten.
func (m *Manager) Reload() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.kinds, m.state, m.queue, m.observed = nil, state{}, queue{}, m.latest()
}

// Changed returns a channel that has a value if there may be work that was not there at the latest Step.
func (m *Manager) Changed() <-chan struct{} { return m.changed }

// Pending returns the work that is due now or later, in its order.
func (m *Manager) Pending() []Task {
	m.mu.Lock()
	defer m.mu.Unlock()
	var due taskHeap
	for t, at := range m.queue.due {
		due = append(due, dueTask{t, at})
	}
	slices.SortFunc(due, compareTasks)
	tasks := make([]Task, len(due))
	for i, t := range due {
		tasks[i] = Task{Controller: m.controllers[t.controller].String(), Key: t.key, Due: t.due}
	}
	return tasks
}

// load reads the objects of the resources that are served since the latest call, and forgets those that are not served
// any more.
func (m *Manager) load() {
	kinds := m.server.Kinds()
	m.mu.Lock()
	if slices.Equal(kinds, m.kinds) {
		m.mu.Unlock()
		return
	}
	before := m.kinds
	m.loading, m.removed = true, map[types.UID]bool{}
	m.mu.Unlock()

	loaded := map[schema.GroupResource][]apiserver.Object{}
	for _, k := range preferred(kinds) {
		if slices.ContainsFunc(before, func(b *apiserver.Kind) bool { return resourceOf(b) == resourceOf(k) }) {
			continue
		}
		// as they are stored, as in the changes that the server reports
		loaded[resourceOf(k)] = m.server.Objects(resourceOf(k))
	}

	m.mu.Lock()
	defer m.mu.Unlock()
	m.kinds, m.loading = kinds, false
	now := time.Now()
	for _, e := range m.state.serve(kinds) {
		m.apply(apiserver.Change{Kind: e.kind, Old: e.obj}, now)
	}
	for _, k := range preferred(kinds) {
		for _, obj := range loaded[resourceOf(k)] {
			known := m.state.objects[resourceOf(k)][objectKey(obj)]
			if m.removed[obj.GetUID()] || known != nil && version(known) >= version(obj) {
				continue
			}
			m.apply(apiserver.Change{Kind: k, Object: obj}, now)
		}
	}
	// The kind of an owner may not have been served so far.
	for _, e := range m.state.byUID {
		if len(e.obj.GetOwnerReferences()) > 0 {
			m.queue.add(task{collectorIndex, collectorKey(e)}, now)
		}
	}
}

// observe notes a committed write.
func (m *Manager) observe(c apiserver.Change) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.loading && c.Object == nil {
		m.removed[c.Old.GetUID()] = true
	}
	m.apply(c, time.Now())
	m.observed = c.Version
	select {
	case m.changed <- struct{}{}:
	default:
	}
}

// apply changes the state, and adds the tasks of all controllers. m.mu is held.
func (m *Manager) apply(c apiserver.Change, now time.Time) {
	if resourceOf(c.Kind).Resource == "events" {
		return // no controller reads them, and they are not garbage collected
	}
	m.state.apply(c)
	earliest := now
	if c.Object == nil || c.Object.GetDeletionTimestamp() != nil {
		earliest = now.Add(apiserver.DeletionStep)
	}
	for i, controller := range m.controllers {
		controller.observe(func(key string, due time.Time) {
			if due.Before(earliest) {
				due = earliest
			}
			m.queue.add(task{i, key}, due)
		}, now, c)
	}
}

// kind returns the served kind of a resource, or nil.
func (m *Manager) kind(resource schema.GroupResource) *apiserver.Kind {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state.kind(resource)
}

// list returns the objects of a resource in a namespace, in the order of their names. They must not be changed.
func (m *Manager) list(resource schema.GroupResource, namespace string) []apiserver.Object {
	m.mu.Lock()
	defer m.mu.Unlock()
	var objects []apiserver.Object
	for key, obj := range m.state.objects[resource] {
		if key.Namespace == namespace {
			objects = append(objects, obj)
		}
	}
	slices.SortFunc(objects, func(a, b apiserver.Object) int { return strings.Compare(a.GetName(), b.GetName()) })
	return objects
}

// get returns an object, which must not be changed, and its kind for requests. Without such an object it returns nil.
func get[T apiserver.Object](
	m *Manager, resource schema.GroupResource, namespace, name string,
) (obj T, k *apiserver.Kind) {
	m.mu.Lock()
	defer m.mu.Unlock()
	obj, _ = m.state.objects[resource][types.NamespacedName{Namespace: namespace, Name: name}].(T)
	return obj, m.state.kind(resource)
}
