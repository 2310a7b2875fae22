package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Paths of what the driver watches.
const (
	webAppsPath     = "/apis/webapp.example.com/v1/webapps"
	deploymentsPath = "/apis/apps/v1/deployments"
	configMapsPath  = "/api/v1/configmaps"
)

// app is the state of a WebApp as the driver has observed it.
type app struct {
	generation, observed int64
	ready                bool
	deleting             bool
}

// child identifies a child with awaited changes.
type child struct {
	path, key string // the collection's path and "namespace/name"
}

// change is a change of a spec with an awaited effect.
type change struct {
	revision int
	sent     time.Time
}

// view follows the WebApps and two kinds of their children by separate watches of the API server.
type view struct {
	client *http.Client
	host   string

	mu        sync.Mutex
	apps      map[string]app     // guarded by mu
	revisions map[child]int      // guarded by mu; the revision that a child shows
	awaited   map[child][]change // guarded by mu
	delays    []time.Duration    // guarded by mu; from a change until its child showed it
	synced    map[string]bool    // guarded by mu; paths whose first list is complete
}

func newView(client *http.Client, host string) *view {
	return &view{
		client: client, host: host, apps: make(map[string]app), revisions: make(map[child]int),
		awaited: make(map[child][]change), synced: make(map[string]bool),
	}
}

// object has the fields that the view reads, of all three kinds.
type object struct {
	Metadata struct {
		Namespace         string
		Name              string
		Generation        int64
		DeletionTimestamp *string
		Annotations       map[string]string
	}
	Spec struct {
		Template struct {
			Spec struct{ Containers []struct{ Image string } }
		}
	}
	Status struct {
		ObservedGeneration int64
		Conditions         []struct{ Type, Status string }
	}
	Data map[string]string
}

// watchEvent is one line of a watch.
type watchEvent struct {
	Type   string
	Object json.RawMessage
}

// follow watches a collection until ctx ends, and begins again whenever the watch breaks.
func (v *view) follow(ctx context.Context, path string) {
	const pause = 100 * time.Millisecond
	for ctx.Err() == nil {
		_ = v.watch(ctx, path) // the API server may be down on purpose; the phases have time limits
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// watch makes one watch that begins with the objects that exist.
func (v *view) watch(ctx context.Context, path string) error {
	const query = "?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, v.host+path+query, nil)
	if err != nil {
		return err
	}
	request.Header.Set("Accept", "application/json")
	response, err := v.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(response.Body, 1000)) // a part of the message will do
		return fmt.Errorf("watch %s: %s: %s", path, response.Status, text)
	}
	found := make(map[string]bool) // until the initial events are over
	decoder := json.NewDecoder(response.Body)
	for {
		var event watchEvent
		var o object
		if err := decoder.Decode(&event); err != nil {
			return err
		}
		if err := json.Unmarshal(event.Object, &o); err != nil {
			return err
		}
		key := o.Metadata.Namespace + "/" + o.Metadata.Name
		switch event.Type {
		case "ERROR":
			return fmt.Errorf("watch %s: %s", path, event.Object)
		case "BOOKMARK":
			if o.Metadata.Annotations["k8s.io/initial-events-end"] == "true" && found != nil {
				v.complete(path, found)
				found = nil
			}
		default:
			if found != nil {
				found[key] = true
			}
			v.take(path, key, event.Type, &o, time.Now())
		}
	}
}

// complete drops the WebApps that were deleted while no watch was running.
func (v *view) complete(path string, found map[string]bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.synced[path] = true
	if path != webAppsPath {
		return
	}
	for key := range v.apps {
		if !found[key] {
			delete(v.apps, key)
		}
	}
}

func (v *view) take(path, key, kind string, o *object, now time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	revision := 0
	switch {
	case path == webAppsPath:
		if kind == "DELETED" {
			delete(v.apps, key)
			return
		}
		a := app{
			generation: o.Metadata.Generation, observed: o.Status.ObservedGeneration,
			deleting: o.Metadata.DeletionTimestamp != nil,
		}
		for _, condition := range o.Status.Conditions {
			a.ready = a.ready || condition.Type == "Ready" && condition.Status == "True"
		}
		v.apps[key] = a
		return
	case path == deploymentsPath && len(o.Spec.Template.Spec.Containers) > 0:
		_, tag, _ := strings.Cut(o.Spec.Template.Spec.Containers[0].Image, ":")
		revision, _ = strconv.Atoi(tag) // 0: not one of ours
	case path == configMapsPath:
		revision, _ = strconv.Atoi(o.Data[revisionKey]) // 0: not one of ours
	}
	if revision == 0 {
		return
	}
	c := child{path, key}
	if kind == "DELETED" {
		delete(v.revisions, c)
		return
	}
	v.revisions[c] = revision
	v.settle(c, now)
}

// settle ends the wait for changes that a child shows by now. v.mu is held.
func (v *view) settle(c child, now time.Time) {
	waiting := v.awaited[c]
	left := waiting[:0]
	for _, change := range waiting {
		if v.revisions[c] >= change.revision {
			v.delays = append(v.delays, now.Sub(change.sent))
		} else {
			left = append(left, change)
		}
	}
	if v.awaited[c] = left; len(left) == 0 {
		delete(v.awaited, c)
	}
}

// await begins the wait until a child shows a revision. Call it before the change is sent.
func (v *view) await(c child, revision int, sent time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.awaited[c] = append(v.awaited[c], change{revision, sent})
}

// forget ends the wait for a change that the API server has not accepted.
func (v *view) forget(c child, revision int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	waiting := v.awaited[c]
	for i, change := range waiting {
		if change.revision == revision {
			v.awaited[c] = append(waiting[:i:i], waiting[i+1:]...)
			break
		}
	}
	if len(v.awaited[c]) == 0 {
		delete(v.awaited, c)
	}
}

// takeDelays returns the delays of the changes that were shown since the last call, and how many changes are not shown.
func (v *view) takeDelays() (delays []time.Duration, unshown int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delays, v.delays = v.delays, nil
	for _, waiting := range v.awaited {
		unshown += len(waiting)
	}
	return delays, unshown
}

// counts is the state of all WebApps.
type counts struct {
	apps    int // that exist
	ready   int // whose status says Ready for the latest generation
	unshown int // changes that no child shows yet
}

func (v *view) counts() counts {
	v.mu.Lock()
	defer v.mu.Unlock()
	c := counts{apps: len(v.apps)}
	for _, a := range v.apps {
		if a.ready && a.observed == a.generation && !a.deleting {
			c.ready++
		}
	}
	for _, waiting := range v.awaited {
		c.unshown += len(waiting)
	}
	return c
}

// isSynced reports whether the first list of every watch is complete.
func (v *view) isSynced() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.synced[webAppsPath] && v.synced[deploymentsPath] && v.synced[configMapsPath]
}

// percentile returns the p-th percentile of delays, 0 without delays.
func percentile(delays []time.Duration, p float64) time.Duration {
	if len(delays) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(delays))
	return sorted[min(int(p/100*float64(len(sorted))), len(sorted)-1)]
}
