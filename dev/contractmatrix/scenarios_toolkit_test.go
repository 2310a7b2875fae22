package contractmatrix

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/finalizer"
	"github.com/evenkeel-go/evenkeel/internal/testlength"
	"github.com/evenkeel-go/evenkeel/kube"
)

// cleanupFinalizer and foreignFinalizer are the operator's entry and another client's.
const (
	cleanupFinalizer = "example.com/cleanup"
	foreignFinalizer = "example.org/foreign"
)

// toolkitAtRest calls helpers that have nothing to change, and reads from informers.
func toolkitAtRest(x *cell) {
	all := names(4)
	for _, name := range all {
		x.put(name, "1")
	}
	x.handler = func(ctx context.Context, r *run) error {
		c := r.process.cached
		if _, err := finalizer.Add(ctx, c, r.obj, cleanupFinalizer); err != nil {
			return err
		}
		missing := x.key(r.name + "-missing")
		existing, err := client.Exists[*metav1.PartialObjectMetadata](ctx, c, missing, client.OfKind(widgetKind))
		if err != nil || existing {
			return fmt.Errorf("a missing object exists: %v, %w", existing, err)
		}
		if _, err := client.Get[*metav1.PartialObjectMetadata](ctx, c, r.key, client.OfKind(widgetKind)); err != nil {
			return err
		}
		if x.conf.parts && !x.conf.twoClusters { // a client reads from informers of its own cluster
			if _, err := client.Get[*metav1.PartialObjectMetadata](ctx, c, r.key, client.OfKind(partKind)); err != nil {
				return err
			}
		}
		if x.conf.metadata {
			return nil
		}
		widget, err := client.Get[*unstructured.Unstructured](ctx, c, r.key, client.OfKind(widgetKind))
		if err != nil {
			return err
		}
		_, _, err = client.EditMetadata(ctx, c, widget, func(labels, _ map[string]string) { labels["example.com/handled"] = "yes" })
		return err
	}
	x.start()
	x.sleep(5 * time.Minute)
	x.upset()
	x.sleep(5 * time.Minute)
	x.server.Requests()
	x.take()
	for _, name := range all {
		x.set(name, "2")
	}
	x.sleep(time.Minute)
	runs := x.take()
	requests := slices.DeleteFunc(x.server.Requests(), func(request string) bool {
		return strings.Contains(request, "/leases") || isAboutForbidden(request) // the informer goes on trying
	})
	if len(requests) > 0 {
		x.t.Errorf("helpers that have nothing to do made requests: %v", requests)
	}
	for _, name := range all {
		if own := of(runs, name); len(own) != 1 {
			x.t.Errorf("%s was handled %d times: %v", name, len(own), own)
		}
		if got := x.server.Object("widgets", x.key(name)).GetFinalizers(); !slices.Equal(got, []string{cleanupFinalizer}) {
			x.t.Errorf("%s has the finalizers %v", name, got)
		}
	}
}

// foreignEntriesStay adds and removes an own finalizer and an own annotation, while another client
// changes entries of the same lists after the informer has shown them.
func foreignEntriesStay(x *cell) {
	x.put("a", "0")
	x.settings.retry.Every.Base, x.settings.retry.Every.Max = 100*time.Millisecond, time.Second
	var mu sync.Mutex
	round, upsets := 0, 0 // upsets is how many of the next runs another client gets ahead of
	x.handler = func(ctx context.Context, r *run) error {
		mu.Lock()
		if upsets == 0 {
			mu.Unlock()
			return nil
		}
		upsets--
		round++
		now := round
		mu.Unlock()
		// The informer has not shown this yet.
		x.server.Edit("widgets", r.key, "other", func(obj map[string]any) bool {
			meta := obj["metadata"].(map[string]any)
			var entries []any
			if now%2 == 0 {
				entries = append(entries, foreignFinalizer+"-first")
			}
			own, _ := meta["finalizers"].([]any)
			for _, entry := range own {
				if entry == any(cleanupFinalizer) {
					entries = append(entries, entry)
				}
			}
			meta["finalizers"] = append(entries, any(foreignFinalizer))
			meta["annotations"].(map[string]any)["example.org/foreign"] = fmt.Sprint(now)
			return true
		})
		want := len(r.value)%2 == 0
		var err error
		if want {
			_, err = finalizer.Add(ctx, r.process.client, r.obj, cleanupFinalizer)
		} else {
			_, err = finalizer.Remove(ctx, r.process.client, r.obj, cleanupFinalizer)
		}
		live := x.server.Object("widgets", r.key)
		if got := live.GetFinalizers(); !slices.Contains(got, foreignFinalizer) || slices.Contains(got, foreignFinalizer+"-first") != (now%2 == 0) {
			x.t.Errorf("round %d: after the write of a handler the finalizers are %v", now, got)
		}
		if got := live.GetAnnotations()["example.org/foreign"]; got != fmt.Sprint(now) {
			x.t.Errorf("round %d: after the write of a handler another client's annotation is %q", now, got)
		}
		if err == nil && slices.Contains(live.GetFinalizers(), cleanupFinalizer) != want {
			x.t.Errorf("round %d: the finalizers are %v, and the own one there: want %v", now, live.GetFinalizers(), want)
		}
		return err
	}
	x.start()
	x.sleep(time.Minute)
	value := "0"
	rounds := testlength.Count(4, 8)
	for range rounds {
		mu.Lock()
		upsets = 3
		mu.Unlock()
		value += "x"
		x.mend("a", value)
		x.sleep(time.Minute)
	}
	mu.Lock()
	defer mu.Unlock()
	if round < rounds {
		x.t.Errorf("%d rounds", round)
	}
}

// teardownGoesOn kills the operator between two steps of a teardown.
func teardownGoesOn(x *cell) {
	all := names(3)
	for _, name := range all {
		x.put(name, "1")
	}
	var mu sync.Mutex
	steps := map[string][]string{}
	var killed *process
	x.settings.teardown = []string{"first", "second", "third"}
	x.settings.step = func(_ context.Context, p *process, key kube.Key, step string) error {
		mu.Lock()
		defer mu.Unlock()
		if step == "second" && (killed == nil || killed == p) {
			killed = p
			p.lose(func(*http.Request) bool { return true }) // the process does nothing more that anybody sees
			return errors.New("killed")
		}
		steps[key.Name] = append(steps[key.Name], step)
		return nil
	}
	x.start()
	x.sleep(time.Minute)
	for _, name := range all {
		if got := x.server.Object("widgets", x.key(name)).GetFinalizers(); !slices.Contains(got, cleanupFinalizer) {
			x.t.Fatalf("%s has the finalizers %v", name, got)
		}
		x.server.Edit("widgets", x.key(name), user, func(map[string]any) bool { return false })
	}
	x.sleep(time.Minute)
	mu.Lock()
	if killed == nil {
		x.t.Fatal("no teardown has begun")
	}
	dead := killed
	mu.Unlock()
	if err := dead.stop(); err != nil {
		x.t.Errorf("Run: %v", err)
	}
	x.processes = slices.DeleteFunc(x.processes, func(p *process) bool { return p == dead })
	x.processes = append(x.processes, x.launch("c"))
	x.sleep(30 * time.Minute)
	mu.Lock()
	defer mu.Unlock()
	for _, name := range all {
		if obj := x.server.Object("widgets", x.key(name)); obj != nil {
			x.t.Errorf("%s is there, with the finalizers %v and the steps %v", name, obj.GetFinalizers(), steps[name])
		}
		for i, step := range x.settings.teardown {
			at := slices.Index(steps[name], step)
			if at < 0 || i > 0 && at < slices.Index(steps[name], x.settings.teardown[i-1]) {
				x.t.Errorf("%s: the steps done are %v", name, steps[name])
			}
		}
		if len(steps[name]) > len(x.settings.teardown)+1 {
			x.t.Errorf("%s: the steps done are %v: more than the one that was under way came twice", name, steps[name])
		}
	}
}

// teardown returns the operator's finalizer, or nil.
func teardown[T kube.Object](p *process) (*finalizer.Finalizer[T], error) {
	s := p.cell.settings
	if len(s.teardown) == 0 {
		return nil, nil //nolint:nilnil // the scenario has no finalizer
	}
	config := finalizer.Config[T]{Client: p.client, Name: cleanupFinalizer}
	for _, step := range s.teardown {
		config.Steps = append(config.Steps, finalizer.Step[T]{Name: step, Run: func(ctx context.Context, obj T) error {
			return s.step(ctx, p, kube.KeyOf(obj), step)
		}})
	}
	return finalizer.New(config)
}

// connectCached makes the client that reads from the process's informers.
func (p *process) connectCached(own client.Informer) (err error) {
	informers := []client.Informer{own}
	if p.cell.conf.twoClusters {
		p.cached, err = p.client.With(func(config *client.Config) { config.Informers = informers })
		return err
	}
	switch parts := p.parts.(type) {
	case readerOf[*metav1.PartialObjectMetadata]:
		informers = append(informers, parts.Informer)
	case readerOf[*unstructured.Unstructured]:
		informers = append(informers, parts.Informer)
	}
	p.cached, err = p.client.With(func(config *client.Config) { config.Informers = informers })
	return err
}
