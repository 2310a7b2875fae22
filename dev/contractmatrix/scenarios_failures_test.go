package contractmatrix

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/source/poll"
)

func deletionsMeanOneObject(x *cell) {
	x.put("a", "1")
	var mu sync.Mutex
	var deleted []error
	x.handler = func(ctx context.Context, r *run) error {
		if r.value != "delete" {
			return nil
		}
		x.server.HoldWatches("widgets")
		x.replace("a") // the handler's object is not there any more
		err := client.DeleteLive(ctx, r.process.client, r.obj, nil)
		mu.Lock()
		defer mu.Unlock()
		deleted = append(deleted, err)
		x.setOutside("a", "done")
		return nil
	}
	x.start()
	x.settle()
	x.set("a", "delete")
	x.sleep(10 * time.Second)
	mu.Lock()
	if len(deleted) == 0 || !errors.Is(deleted[0], client.ErrGone) && !errors.Is(deleted[0], client.ErrReplaced) {
		x.t.Errorf("deleting an object that was replaced: %v", deleted)
	}
	mu.Unlock()
	if x.server.Object("widgets", x.key("a")) == nil {
		x.t.Error("another object was deleted")
	}
	x.serverOf(x.carrier()).Edit(x.carrier(), x.key("a"), user, func(obj map[string]any) bool {
		obj["metadata"].(map[string]any)["annotations"] = map[string]any{valueAnnotation: "done"}
		return true
	})
	x.server.ReleaseWatches("widgets")
	x.settle()
}

func queueHasAKeyOnce(x *cell) {
	x.put("busy", "0")
	x.put("a", "0")
	x.settings.workers = 1
	x.handler = func(ctx context.Context, r *run) error {
		if r.name == "busy" && r.value == "work" {
			return pause(ctx, 30*time.Second)
		}
		return nil
	}
	x.start()
	x.settle()
	x.take()
	x.set("busy", "work")
	x.sleep(5 * time.Second)
	for i := range 20 {
		x.set("a", fmt.Sprint(i))
		x.sleep(100 * time.Millisecond)
	}
	x.sleep(time.Minute)
	runs := of(x.take(), "a")
	if len(runs) != 1 || runs[0].value != "19" {
		x.t.Errorf("20 changes while the worker was busy: %v, want one run with the last value", runs)
	}
}

func failuresHaveAnEnd(x *cell) {
	x.put("terminal", "0")
	x.put("limited", "0")
	x.settings.retry.Every.MaxRetries = 3
	x.handler = func(_ context.Context, r *run) error {
		if r.value != "fails" {
			return nil
		}
		if r.name == "terminal" {
			return controller.Terminal(x.failure())
		}
		return x.failure()
	}
	x.start()
	x.settle()
	x.take()
	expect := func(what, name string, attempts ...int) {
		x.t.Helper()
		var got []int
		for _, r := range of(x.take(), name) {
			got = append(got, r.attempt)
		}
		if !slices.Equal(got, attempts) {
			x.t.Errorf("%s: the attempts of %s are %v, want %v", what, name, got, attempts)
		}
	}
	both := func(what string, terminal, limited []int) {
		x.t.Helper()
		x.sleep(time.Hour)
		runs := x.take()
		for name, want := range map[string][]int{"terminal": terminal, "limited": limited} {
			x.mu.Lock()
			x.runs = of(runs, name)
			x.mu.Unlock()
			expect(what, name, want...)
		}
	}
	for _, name := range []string{"terminal", "limited"} {
		x.set(name, "fails")
	}
	both("at first", []int{0}, []int{0, 1, 2, 3})
	// The failures belong to the object: another object with the same name starts with none. If a Part stores the
	// value, it has the old one.
	for _, name := range []string{"terminal", "limited"} {
		x.replace(name)
	}
	both("another object", []int{0}, []int{0, 1, 2, 3})
	for _, name := range []string{"terminal", "limited"} {
		x.set(name, "works")
		x.setOwn(name, "works")
		x.sleep(time.Second)
	}
	x.sleep(time.Hour)
	for _, r := range x.take() {
		if r.value == "works" && r.attempt > 4 {
			x.t.Errorf("after the change: %v", r)
		}
	}
	if problems := x.leading().problems(); len(problems) > 0 {
		x.t.Errorf("after the change, problems %+v", problems)
	}
}

func hotLoopIsNamed(x *cell) {
	if x.conf.showsPartsOfObjects() {
		endlessLoopIsNamed(x)
		return
	}
	x.put("a", "1")
	var told eventLog
	x.settings.events = &told
	var mu sync.Mutex
	fighting := false
	x.handler = func(ctx context.Context, r *run) error {
		mu.Lock()
		defer mu.Unlock()
		if !fighting {
			return nil
		}
		return r.write(ctx, "mine")
	}
	x.start()
	x.settle()
	mu.Lock()
	fighting = true
	mu.Unlock()
	fight := func(rounds int) (runs int) {
		x.take()
		for range rounds {
			x.sleep(3 * time.Second)
			x.serverOf(x.carrier()).Edit(x.carrier(), x.key("a"), "autoscaler", func(obj map[string]any) bool {
				obj["metadata"].(map[string]any)["annotations"].(map[string]any)[noteAnnotation] = "theirs"
				return true
			})
		}
		return len(of(x.take(), "a"))
	}
	fight(40)
	p := x.leading()
	problems := slices.DeleteFunc(p.runner.Problems(), func(t controller.Problem) bool { return t.Type != controller.ProblemHotLoop })
	if len(problems) != 1 || problems[0].Key != x.key("a") {
		x.t.Fatalf("problems %+v", p.runner.Problems())
	}
	text := fmt.Sprint(problems[0])
	for _, want := range []string{noteAnnotation, "autoscaler", operator, "mine", "theirs"} {
		if !strings.Contains(text, want) {
			x.t.Errorf("the problem does not name %q: %s", want, text)
		}
	}
	if n := len(with(told.take(), "HotLoop", "/a ")); n != x.conf.events() {
		x.t.Errorf("%d Events, want %d", n, x.conf.events())
	}
	if runs := fight(40); runs > 20 {
		x.t.Errorf("%d runs in two minutes of the episode: it is not slowed", runs)
	}
	x.sleep(2 * time.Hour)
	if problems := p.runner.Problems(); slices.ContainsFunc(problems, func(t controller.Problem) bool { return t.Type == controller.ProblemHotLoop }) {
		x.t.Errorf("two hours after the last of it, problems %+v", problems)
	}
}

// endlessLoopIsNamed is hotLoopIsNamed for objects that only an informer of metadata shows. The other client of such an
// object is not identified. A handler that its own writes run repeatedly is.
func endlessLoopIsNamed(x *cell) {
	x.put("a", "1")
	var told eventLog
	x.settings.events = &told
	var mu sync.Mutex
	looping, writes := false, 0
	x.handler = func(ctx context.Context, r *run) error {
		mu.Lock()
		defer mu.Unlock()
		if !looping {
			return nil
		}
		writes++
		return r.write(ctx, fmt.Sprint(writes))
	}
	x.start()
	x.settle()
	mu.Lock()
	looping = true
	mu.Unlock()
	x.set("a", "2")
	x.sleep(time.Minute)
	p := x.leading()
	problems := slices.DeleteFunc(p.runner.Problems(), func(t controller.Problem) bool { return t.Type != controller.ProblemHotLoop })
	if len(problems) != 1 || problems[0].Key != x.key("a") || !strings.Contains(fmt.Sprint(problems[0]), operator) {
		x.t.Fatalf("%d writes, problems %+v", writes, p.runner.Problems())
	}
	if n := len(with(told.take(), "HotLoop", "/a ")); n != x.conf.events() {
		x.t.Errorf("%d Events, want %d", n, x.conf.events())
	}
	x.take()
	x.sleep(4 * time.Minute)
	if runs := len(of(x.take(), "a")); runs < 2 || runs > 20 {
		x.t.Errorf("%d runs in four minutes of the episode: it is not slowed, or was stopped", runs)
	}
	mu.Lock()
	looping = false
	mu.Unlock()
	x.sleep(2 * time.Hour)
	if problems := p.runner.Problems(); slices.ContainsFunc(problems, func(t controller.Problem) bool { return t.Type == controller.ProblemHotLoop }) {
		x.t.Errorf("two hours after the last of it, problems %+v", problems)
	}
}

func stuckHandlerIsReplaced(x *cell) {
	x.put("stuck", "0")
	x.put("b", "0")
	release := make(chan struct{})
	x.settings.workers, x.settings.stuckAfter, x.settings.unreadyWhenStuck = 1, time.Minute, true
	x.handler = func(_ context.Context, r *run) error {
		if r.name == "stuck" && r.value == "block" {
			blockUntil(release)
		}
		return nil
	}
	x.start()
	x.settle()
	x.take()
	x.logs.take()
	x.set("stuck", "block")
	x.sleep(10 * time.Second)
	x.set("b", "1")
	x.sleep(30 * time.Second)
	if runs := of(x.take(), "b"); len(runs) != 0 {
		x.t.Errorf("the only worker is busy, and %v", runs)
	}
	x.sleep(2 * time.Minute)
	if runs := of(x.take(), "b"); len(runs) != 1 {
		x.t.Errorf("beside a stuck handler, runs %v", runs)
	}
	p := x.leading()
	if err := p.ready(); err == nil || !strings.Contains(err.Error(), "/stuck") {
		x.t.Errorf("Ready: %v, want the stuck key", err)
	}
	x.sleep(10 * time.Minute)
	if logged := with(x.logs.take(), "blockUntil", "/stuck"); len(logged) != 1 {
		x.t.Errorf("the stack is logged %d times", len(logged))
	}
	close(release)
	x.settle()
	if err := p.ready(); err != nil {
		x.t.Errorf("when it has returned: %v", err)
	}
	if n := p.runner.Stats().Problems[controller.ProblemStuck]; n != 0 {
		x.t.Errorf("when it has returned, %d stuck handlers are counted", n)
	}
}

func blockUntil(release chan struct{}) { <-release }

func endlessFailuresAreReported(x *cell) {
	x.put("a", "0")
	var told eventLog
	x.settings.events = &told
	x.handler = func(_ context.Context, r *run) error {
		if r.value == "fails" {
			return x.failure()
		}
		return nil
	}
	x.start()
	x.settle()
	told.take()
	x.set("a", "fails")
	x.sleep(5 * time.Hour)
	uid := string(x.server.Object("widgets", x.key("a")).GetUID())
	if events := with(told.take(), "Widget/a "+uid, "Failing: has failed "); len(events) != x.conf.events() {
		x.t.Errorf("the Events %q, want %d", events, x.conf.events())
	}
	p := x.leading()
	if s := p.runner.Stats(); s.Failing < 1 || s.Problems[controller.ProblemFailing] < 1 {
		x.t.Errorf("Stats %+v", s)
	}
	x.mend("a", "works")
	x.sleep(time.Hour)
	if problems := p.runner.Problems(); slices.ContainsFunc(problems, func(t controller.Problem) bool { return t.Key == x.key("a") }) {
		x.t.Errorf("after a success, problems %+v", problems)
	}
}

func timersBelongToObjects(x *cell) {
	all := []string{"stays", "goes", "returns"}
	for _, name := range all {
		x.put(name, "0")
	}
	var set sync.Map // by process and uid
	x.handler = func(ctx context.Context, r *run) error {
		if r.value == "0" {
			return nil
		}
		if _, known := set.LoadOrStore([2]any{r.process, r.uid}, true); known {
			return nil
		}
		if err := errors.Join(controller.SetTimer(ctx, "certificate", time.Hour), controller.SetTimer(ctx, "never", 2*time.Hour)); err != nil {
			return err
		}
		controller.StopTimer(ctx, "never")
		return nil
	}
	x.start()
	x.settle()
	x.take()
	for _, name := range all {
		x.set(name, "1")
	}
	x.sleep(30 * time.Minute)
	x.set("stays", "2") // other runs do not supersede a timer
	x.remove("goes")
	x.replace("returns") // with a timer of its own
	x.sleep(time.Minute)
	x.take()
	timers := func() (fired []string) {
		for _, r := range x.take() {
			if strings.Contains(r.causes, "timer") {
				fired = append(fired, r.name+": "+r.causes)
			}
		}
		return fired
	}
	x.sleep(30 * time.Minute)
	if got := timers(); !slices.Equal(got, []string{"stays: timer (certificate)"}) {
		x.t.Errorf("an hour after the timers were set: %q", got)
	}
	x.sleep(3 * time.Hour)
	if got := timers(); !slices.Equal(got, []string{"returns: timer (certificate)"}) {
		x.t.Errorf("after four hours: %q", got)
	}
}

func pollsFindChanges(x *cell) {
	x.put("a", "1")
	x.put("b", "1")
	var mu sync.Mutex
	var found []poll.Item
	var fails error
	x.settings.sources = []controller.Source{poll.New(poll.Config{
		Name: "images", Interval: time.Minute, Jitter: -1,
		Poller: poll.List(func(context.Context) ([]poll.Item, error) {
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(found), fails
		}),
	})}
	x.start()
	x.settle()
	image := func(name, version string) poll.Item {
		return poll.Item{ID: name, Version: version, Keys: []kube.Key{x.key(name)}}
	}
	checkPoll := func(what string, err error, items []poll.Item, want ...string) {
		x.t.Helper()
		x.take()
		mu.Lock()
		found, fails = items, err
		mu.Unlock()
		x.sleep(5 * time.Minute)
		var got []string
		for _, r := range x.take() {
			if strings.Contains(r.causes, "images") {
				got = append(got, r.name+": "+r.causes)
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			x.t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	checkPoll("added", nil, []poll.Item{image("a", "1")}, "a: images: added (a)")
	checkPoll("another", nil, []poll.Item{image("a", "1"), image("b", "1")}, "b: images: added (b)")
	checkPoll("updated", nil, []poll.Item{image("a", "2"), image("b", "1")}, "a: images: updated (a)")
	checkPoll("fails", errors.New("the registry is down"), nil)
	checkPoll("removed", nil, []poll.Item{image("a", "2")}, "b: images: deleted (b)")
}

func deletedGetsTheLastState(x *cell) {
	for _, name := range []string{"watched", "fails", "listed", "replaced"} {
		x.put(name, "1")
	}
	var calls lines
	var once sync.Once
	x.settings.deleted = func(_ context.Context, key kube.Key, value string, stale bool) (err error) {
		if strings.HasPrefix(key.Name, "wicked") {
			return nil
		}
		calls.add("deleted %s %s stale=%v", key.Name, value, stale)
		if key.Name == "fails" && value == "2" {
			once.Do(func() { err = x.failure() })
		}
		return err
	}
	x.handler = func(_ context.Context, r *run) error {
		if r.name == "replaced" {
			calls.add("handled %s %s", r.name, r.obj.GetAnnotations()[valueAnnotation])
		}
		return nil
	}
	x.start()
	x.sleep(10 * time.Minute)
	for _, name := range []string{"watched", "fails", "listed", "replaced"} {
		x.setOwn(name, "2")
	}
	x.sleep(time.Minute)
	calls.take()
	expect := func(what string, want ...string) {
		x.t.Helper()
		x.sleep(time.Minute)
		if got := calls.take(); !slices.Equal(got, want) {
			x.t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	x.remove("watched")
	expect("by a watch", "deleted watched 2 stale=false")
	x.remove("fails")
	expect("when it fails", "deleted fails 2 stale=false", "deleted fails 2 stale=false")
	x.server.HoldWatches("widgets")
	x.remove("listed")
	x.server.Break("widgets", true)
	expect("by a list", "deleted listed 2 stale=true")
	x.server.HoldWatches("widgets")
	x.replace("replaced")
	x.setOwn("replaced", "3")
	x.server.Break("widgets", true)
	x.sleep(time.Minute)
	got := calls.take()
	if len(got) < 2 || got[0] != "deleted replaced 2 stale=true" || got[len(got)-1] != "handled replaced 3" {
		x.t.Errorf("another object in its place: %q", got)
	}
}

func resyncsAreSpread(x *cell) {
	const interval = 10 * time.Minute
	all := names(40)
	for _, name := range append(all, "failing") {
		x.put(name, "1")
	}
	x.settings.resync = interval
	x.handler = func(_ context.Context, r *run) error {
		if r.name == "failing" {
			return x.failure()
		}
		return nil
	}
	x.start()
	x.sleep(2 * interval)
	x.take()
	began := time.Now()
	x.sleep(interval)
	perMinute := map[int]int{}
	runs := x.take()
	for _, r := range runs {
		if r.name == "failing" && strings.Contains(r.causes, "resync") {
			x.t.Errorf("an object that fails is resynced: %s", r)
		}
		if r.causes == "resync" {
			perMinute[int(r.started.Sub(began)/time.Minute)]++
		}
	}
	if x.conf.replaced || x.conf.poll {
		return // they were replaced, or polled, at one moment, and resyncs are counted from the last success
	}
	if len(perMinute) < 6 {
		x.t.Errorf("the resyncs of %d objects are in %d of 10 minutes: they are not spread", len(all), len(perMinute))
	}
	for minute, n := range perMinute {
		if n > len(all)/3 {
			x.t.Errorf("%d of %d resyncs are in minute %d: they are not spread", n, len(all), minute)
		}
	}
}

func statusIsWrittenOnce(x *cell) {
	x.put("a", "1")
	x.settings.commitStatus = true
	x.settings.retry.Every.Base = time.Hour
	x.handler = func(_ context.Context, r *run) error {
		obj, ok := r.obj.(interface{ UnstructuredContent() map[string]any })
		if !ok {
			x.t.Errorf("a handler gets a %T", r.obj)
			return nil
		}
		obj.UnstructuredContent()["status"] = map[string]any{"seen": r.value}
		switch r.value {
		case "fails":
			return x.failure()
		case "panics":
			panicking(x.failure())
		case "later":
			return controller.RequeueAfter(time.Hour)
		}
		return nil
	}
	x.start()
	x.settle()
	for _, value := range []string{"succeeds", "fails", "later", "panics"} {
		x.mend("a", value)
		x.sleep(3 * time.Minute)
		x.server.Requests()
		status, _ := x.server.Object("widgets", x.key("a")).Object["status"].(map[string]any)
		if status["seen"] != value {
			x.t.Errorf("after a run that %s, the status is %v", value, status)
		}
		// Another run with the same status writes nothing.
		x.server.Edit("widgets", x.key("a"), user, func(obj map[string]any) bool {
			obj["metadata"].(map[string]any)["labels"] = map[string]any{"at": fmt.Sprint(time.Now().Unix())}
			obj["metadata"].(map[string]any)["annotations"] = map[string]any{valueAnnotation: value}
			obj["spec"] = map[string]any{"value": value}
			return true
		})
		x.sleep(3 * time.Minute)
		if requests := with(x.server.Requests(), "/widgets/a/status"); len(requests) > 0 {
			x.t.Errorf("a run that changed nothing in the status: requests %v", requests)
		}
	}
}
