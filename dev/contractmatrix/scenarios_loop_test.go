package contractmatrix

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/internal/apitest"
	"github.com/evenkeel-go/evenkeel/internal/testlength"
	"github.com/evenkeel-go/evenkeel/kube"
)

// names returns n names.
func names(n int) []string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprint("w", i))
	}
	return all
}

func oneKeyAtOnce(x *cell) {
	all := names(6)
	for _, name := range all {
		x.put(name, "0")
	}
	var mu sync.Mutex
	busy := map[string]int{}
	most := 0
	x.settings.workers = 4
	x.handler = func(ctx context.Context, r *run) error {
		mu.Lock()
		busy[r.name]++
		if busy[r.name] > 1 {
			x.t.Errorf("%s is handled twice at once", r.name)
		}
		most = max(most, len(busy))
		mu.Unlock()
		err := pause(ctx, time.Second)
		mu.Lock()
		defer mu.Unlock()
		if busy[r.name]--; busy[r.name] == 0 {
			delete(busy, r.name)
		}
		return err
	}
	x.start()
	changes := testlength.Count(80, 200)
	for i := range changes {
		x.set(all[i%len(all)], fmt.Sprint(i))
		if i == changes/2 {
			x.upset()
		}
		time.Sleep(50 * time.Millisecond)
	}
	time.Sleep(30 * time.Second)
	mu.Lock()
	defer mu.Unlock()
	if most < 3 || most > 5 { // one of the workers may have another object
		x.t.Errorf("at most %d of 6 objects were handled at once by 4 workers", most)
	}
}

func lastChangeHandled(x *cell) {
	all := names(4)
	for _, name := range all {
		x.put(name, "first")
	}
	random := rand.New(rand.NewPCG(7, uint64(len(x.conf.name))))
	var mu sync.Mutex
	roll := func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		return random.IntN(n)
	}
	calm := false
	seen := map[string]string{}
	x.handler = func(ctx context.Context, r *run) error {
		if err := pause(ctx, time.Duration(roll(40))*time.Millisecond); err != nil {
			return err
		}
		mu.Lock()
		seen[r.name] = r.value
		quiet := calm
		mu.Unlock()
		if quiet {
			return nil
		}
		switch roll(6) {
		case 0:
			return x.failure()
		case 1:
			panic("panicked")
		case 2:
			return controller.RequeueAfter(time.Duration(roll(100)) * time.Millisecond)
		case 3:
			return r.write(ctx, fmt.Sprint("note-", roll(1000)))
		}
		return nil
	}
	x.start()
	steps := testlength.Count(60, 120)
	for i := range steps {
		name := all[roll(len(all))]
		switch roll(12) {
		case 0:
			x.serverOf(x.carrier()).Break(x.carrier(), false)
		case 1:
			x.serverOf(x.carrier()).Break(x.carrier(), true)
		case 2:
			if !x.conf.poll && !x.conf.handOver { // the others stop in a moment
				x.leading().restart()
			}
		case 3:
			x.replace(name)
		default:
			x.set(name, fmt.Sprint(i))
		}
		time.Sleep(time.Duration(roll(60)) * time.Millisecond)
		if i == steps/2 {
			x.upset()
		}
	}
	x.serverOf(x.carrier()).Break(x.carrier(), true)
	for _, name := range all {
		x.set(name, "last")
	}
	mu.Lock()
	calm = true
	mu.Unlock()
	time.Sleep(30 * time.Minute)
	mu.Lock()
	defer mu.Unlock()
	for _, name := range all {
		if seen[name] != "last" {
			x.t.Errorf("%s was last handled as %q\n%s", name, seen[name], x.leading().runner.Explain(x.key(name)))
		}
	}
}

func listedOnceThenResynced(x *cell) {
	const interval = 10 * time.Minute
	all := names(40)
	for _, name := range all {
		x.put(name, "1")
	}
	x.settings.resync = interval
	began := time.Now()
	x.start()
	x.settle() // in less than a tenth of the interval
	most := 1
	if x.conf.optional != nil || x.conf.poll {
		// Data that is missing when handlers start (the first poll, an optional kind) may run each object once more
		// when it arrives.
		most = 2
	}
	var wrong []string
	runs := x.take()
	for _, name := range all {
		if n := len(of(runs, name)); n < 1 || n > most {
			wrong = append(wrong, fmt.Sprint(of(runs, name)))
		}
	}
	if len(wrong) > 0 {
		x.t.Errorf("%d of %d objects were not handled once at the start, but as in %s", len(wrong), len(all), wrong[0])
	}
	if time.Since(began) > 2*time.Minute {
		time.Sleep(2 * interval) // the time before the scenario has left resyncs
		x.take()
	}
	time.Sleep(5 * interval)
	runs = x.take()
	for _, name := range all {
		own := of(runs, name)
		if len(own) < 4 || len(own) > 6 {
			x.t.Errorf("%s was handled %d times in 5 resync intervals: %v", name, len(own), own)
		}
		for i, r := range own {
			if r.causes != "resync" {
				x.t.Errorf("a resync has the causes %s", r)
			}
			if i > 0 && r.started.Sub(own[i-1].started) < interval*8/10 {
				x.t.Errorf("%s was resynced %s after the run before", name, r.started.Sub(own[i-1].started))
			}
		}
	}
}

func successResetsAndDrain(x *cell) {
	x.put("a", "0")
	var failing sync.Map
	x.handler = func(ctx context.Context, r *run) error {
		if r.value == "slow" {
			began := time.Now()
			err := pause(ctx, 10*time.Second)
			if took := time.Since(began); took < 10*time.Second || err != nil {
				x.t.Errorf("a handler was cancelled %s after it began, within the drain time: %v", took, err)
			}
			return nil
		}
		if _, ok := failing.Load(r.value); ok && r.attempt < 2 {
			return x.failure()
		}
		return nil
	}
	x.settings.drain = time.Minute
	x.start()
	x.settle()
	for i := range 3 {
		x.take()
		value := fmt.Sprint("round-", i)
		failing.Store(value, true)
		x.set("a", value)
		time.Sleep(3 * time.Minute)
		var attempts []int
		for _, r := range of(x.take(), "a") {
			attempts = append(attempts, r.attempt)
		}
		if !slices.Equal(attempts, []int{0, 1, 2}) {
			x.t.Errorf("round %d: attempts %v, want 0, 1, 2", i, attempts)
		}
	}
	x.set("a", "slow")
	time.Sleep(5 * time.Second)
	if n := len(of(x.take(), "a")); n != 1 {
		x.t.Errorf("%d runs under way, want 1", n)
	}
	p := x.leading()
	if err := p.stop(); err != nil {
		x.t.Error(err)
	}
	p.run()
}

func runEndsLast(x *cell) {
	x.put("a", "1")
	var mu sync.Mutex
	running := map[string]bool{}
	mark := func(what string, on bool) {
		mu.Lock()
		defer mu.Unlock()
		if on {
			running[what] = true
		} else {
			delete(running, what)
		}
	}
	x.settings.drain = time.Second
	x.handler = func(ctx context.Context, r *run) error {
		mark("handler of "+r.process.name, true)
		<-ctx.Done()
		time.Sleep(2 * time.Second)
		mark("handler of "+r.process.name, false)
		return nil
	}
	x.settings.sources = []controller.Source{controller.SourceFunc(func(ctx context.Context, _ controller.Enqueue) error {
		mark("source", true)
		<-ctx.Done()
		time.Sleep(3 * time.Second)
		mark("source", false)
		return nil
	})}
	x.start()
	x.settle()
	others := 0 // the watches of the controllers that share informers with those that end
	if x.conf.shared {
		others = 2 * len(x.processes)
		synctest.Wait() // a watch that has just ended is started again
		if n := x.server.Watches(); n != others {
			x.t.Errorf("%d watches are open, want %d, which controllers share", n, others)
		}
	}
	for _, p := range x.processes {
		var holder string
		p.lose(func(req *http.Request) bool {
			if strings.Contains(req.URL.Path, "/leases/") && req.Method == http.MethodPut {
				mu.Lock()
				defer mu.Unlock()
				holder = fmt.Sprint(running)
			}
			return false
		})
		worked := p == x.leadingOrNil()
		if err := p.stop(); err != nil {
			x.t.Error(err)
		}
		mu.Lock()
		if len(running) > 0 && len(x.processes) == 1 {
			x.t.Errorf("Run has returned, and these go on: %v", running)
		}
		mu.Unlock()
		if x.settings.elect && worked && holder != "map[]" && len(x.processes) == 1 {
			x.t.Errorf("the lease was released while these went on: %s", holder)
		}
	}
	synctest.Wait()
	if n := x.server.Watches(); n != others {
		x.t.Errorf("every Run has returned, and %d watches are open, want %d", n, others)
	}
}

func lossCancelsAndRefuses(x *cell) {
	x.put("a", "1")
	x.settings.elect = true
	var mu sync.Mutex
	var ended time.Time
	var cause, refused error
	x.handler = func(ctx context.Context, r *run) error {
		<-ctx.Done()
		mu.Lock()
		defer mu.Unlock()
		ended, cause = time.Now(), context.Cause(ctx)
		refused = r.write(context.WithoutCancel(ctx), "after the loss")
		return ctx.Err()
	}
	x.start()
	time.Sleep(time.Minute)
	p := x.leading()
	until := p.elector.Status().Until
	p.lose(func(req *http.Request) bool { return strings.Contains(req.URL.Path, "/leases") })
	for p.elector.Status().Leading {
		until = p.elector.Status().Until
		time.Sleep(100 * time.Millisecond)
	}
	synctest.Wait()
	mu.Lock()
	if !errors.Is(cause, kube.ErrLeadershipLost) {
		x.t.Errorf("the handler's context ended with the cause %v, want %v", cause, kube.ErrLeadershipLost)
	}
	if ended.After(until.Add(10 * time.Millisecond)) {
		x.t.Errorf("the handler was cancelled %s after the lease's end", ended.Sub(until))
	}
	if !errors.Is(refused, kube.ErrLeadershipLost) {
		x.t.Errorf("a write after the loss: %v, want %v", refused, kube.ErrLeadershipLost)
	}
	mu.Unlock()
	if note := x.serverOf(x.carrier()).Object(x.carrier(), x.key("a")).GetAnnotations()[noteAnnotation]; note != "" {
		x.t.Errorf("a write after the loss was done: %q", note)
	}
	p.lose(nil)
}

func ownWritesAreSeen(x *cell) {
	all := names(4)
	for _, name := range all {
		x.put(name, "0")
	}
	var mu sync.Mutex
	last := map[string]int{} // the last note, by object
	// Where an informer does not show what the handler writes, each write causes a run. So it ends after some of one value.
	const mostOfValue = 8
	ofValue := map[[2]string]int{} // writes, by object and value
	x.handler = func(ctx context.Context, r *run) error {
		var read int
		if r.note != "" {
			if _, err := fmt.Sscan(r.note, &read); err != nil {
				x.t.Errorf("the note %q: %v", r.note, err)
			}
		}
		mu.Lock()
		written := last[string(r.uid)]
		same := [2]string{string(r.uid), r.value}
		ofValue[same]++
		ends := ofValue[same] > mostOfValue
		mu.Unlock()
		if read < written {
			x.t.Errorf("process %s, a run of %s (%s) reads the note %d, and a run before has written %d", r.process.name, r.name, r.causes, read, written)
		}
		if ends {
			return nil
		}
		if err := r.write(ctx, fmt.Sprint(written+1)); err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		last[string(r.uid)] = written + 1
		return nil
	}
	x.start()
	x.settle()
	changes := testlength.Count(20, 40)
	for i := range changes {
		if i%4 == 0 {
			x.serverOf(x.carrier()).HoldWatches(x.carrier())
		}
		x.setOwn(all[i%len(all)], fmt.Sprint("own-", i))
		x.set(all[(i+1)%len(all)], fmt.Sprint(i))
		time.Sleep(300 * time.Millisecond)
		if i%4 == 3 {
			time.Sleep(2 * time.Second)
			x.serverOf(x.carrier()).ReleaseWatches(x.carrier())
		}
		if i == changes/2 {
			x.serverOf(x.carrier()).ReleaseWatches(x.carrier())
			x.settle()
			x.upset()
		}
	}
	x.serverOf(x.carrier()).ReleaseWatches(x.carrier())
	time.Sleep(time.Minute)
	mu.Lock()
	defer mu.Unlock()
	for _, name := range all {
		written := last[string(x.server.Object("widgets", x.key(name)).GetUID())]
		if written < 4 {
			x.t.Errorf("%s was written %d times: the scenario tests nothing", name, written)
		}
	}
}

func panicIsAnErrorOfItsKey(x *cell) {
	x.put("bad", "0")
	x.put("good", "0")
	x.settings.workers = 1
	x.handler = func(_ context.Context, r *run) error {
		if r.name == "bad" && r.value == "panic" && r.attempt < 4 {
			panicking(x.failure())
		}
		return nil
	}
	x.start()
	x.settle()
	x.take()
	x.logs.take()
	x.set("bad", "panic")
	x.set("good", "1")
	time.Sleep(2 * time.Minute)
	runs := x.take()
	if n := len(of(runs, "bad")); n != 5 {
		x.t.Errorf("a handler that panics four times ran %d times, want 5: %v", n, of(runs, "bad"))
	}
	if n := len(of(runs, "good")); n != 1 {
		x.t.Errorf("another key ran %d times, want once: %v", n, of(runs, "good"))
	}
	if logged := with(x.logs.take(), "panicking(", "bad"); len(logged) != 1 && !x.conf.errors {
		x.t.Errorf("the stack was logged %d times, want once:\n%s", len(logged), strings.Join(logged, "\n"))
	}
}

func panicking(value error) { panic(value) }

func forbiddenIsNamed(x *cell) {
	x.put("a", "1")
	x.start()
	x.settle()
	x.take()
	x.logs.take()
	resource := x.carrier()
	if x.conf.forbidden {
		if err := x.leading().runner.Ready(); err == nil || !strings.Contains(err.Error(), forbiddenNamespace) {
			x.t.Errorf("Ready while one namespace is forbidden: %v", err)
		}
	}
	x.serverOf(x.carrier()).Hook(func(req *http.Request, do func() *http.Response) (*http.Response, error) {
		if req.Method == http.MethodGet && strings.HasSuffix(req.URL.Path, "/"+resource) && (!x.conf.combined || strings.Contains(req.URL.Path, x.key("a").Namespace)) {
			return apitest.Failure(apierrors.NewForbidden(schema.GroupResource{Group: group.Group, Resource: resource}, "",
				errors.New("User \"operator\" cannot list resource "+resource))), nil
		}
		return x.permanent(req, do)
	})
	x.serverOf(resource).Break(resource, true)
	time.Sleep(5 * time.Second)
	p := x.leading()
	err := p.ready()
	switch {
	case x.conf.optional != nil:
		if err != nil {
			x.t.Errorf("Ready while an optional informer is forbidden: %v", err)
		}
		if h := p.parts.health(); !h.Degraded || h.Err == nil {
			x.t.Errorf("Health while an optional informer is forbidden: %+v", h)
		}
	case err == nil || !strings.Contains(err.Error(), "cannot list resource "+resource):
		x.t.Errorf("Ready while %s is forbidden: %v", resource, err)
	}
	if logged := with(x.logs.take(), "level=WARN", "cannot list resource "+resource); len(logged) == 0 {
		x.t.Error("the log does not name the resource")
	}
	x.serverOf(x.carrier()).Hook(x.permanent)
	time.Sleep(time.Minute)
	if err := p.ready(); err != nil {
		x.t.Errorf("Ready when it is allowed again: %v", err)
	}
	x.set("a", "2")
	x.settle()
	if runs := of(x.take(), "a"); len(runs) == 0 || runs[len(runs)-1].value != "2" {
		x.t.Errorf("a change after it was allowed again was handled as %v", runs)
	}
}

func reconnectHandlesNothing(x *cell) {
	all := names(3)
	for _, name := range all {
		x.put(name, "1")
	}
	x.start()
	time.Sleep(time.Minute)
	x.take()
	for i := range 10 {
		x.server.Break("widgets", i%2 == 1)
		x.serverOf(x.carrier()).Break(x.carrier(), i%3 == 1)
		time.Sleep(time.Minute)
	}
	if runs := x.take(); len(runs) > 0 {
		x.t.Errorf("objects that did not change were handled: %v", runs)
	}
}
