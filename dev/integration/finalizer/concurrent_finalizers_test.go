package finalizer_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/finalizer"
	"github.com/evenkeel-go/evenkeel/internal/testlength"
)

// Two controllers add and remove their finalizers on the same objects, from states that are stale most of the time. A
// third client writes labels, and a fourth adds and removes its own finalizers as safely as possible: with merge
// patches and optimistic locking. No entry is ever lost, and no removed entry comes back.
func TestContract33_ConcurrentFinalizersKeepAllEntries(t *testing.T) {
	const objects = 3
	rounds := testlength.Count(80, 250)
	e := newEnv(t)
	var created []*corev1.ConfigMap
	for i := range objects {
		created = append(created, e.create(fmt.Sprint("raced-", i)))
	}
	ctx, cancel := context.WithCancel(t.Context())
	var hands, racers sync.WaitGroup
	hands.Go(func() { // labels, continuously
		for i := 0; ctx.Err() == nil; i++ {
			obj := created[i%objects]
			labeled := obj.DeepCopy()
			labeled.Labels = map[string]string{"round": fmt.Sprint(i)}
			if _, err := client.Patch(ctx, e.Client, obj, client.MergeFrom(obj, labeled)); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		}
	})
	var foreign atomic.Int32
	wrote := make(chan struct{}, 1) // after a write of the third controller
	hands.Go(func() {               // finalizers, with merge patches
		defer close(wrote)
		for i := 0; ctx.Err() == nil; i++ {
			obj, err := client.GetLive(ctx, e.Client, created[i%objects])
			if err != nil {
				break
			}
			changed := obj.DeepCopy()
			if slices.Contains(obj.Finalizers, third) {
				changed.Finalizers = slices.DeleteFunc(changed.Finalizers, func(name string) bool { return name == third })
			} else {
				changed.Finalizers = slices.Insert(changed.Finalizers, 0, third) // moves the other entries
			}
			_, err = client.Patch(ctx, e.Client, obj, client.MergeFrom(obj, changed).Locked(obj))
			if err == nil {
				foreign.Add(1)
				select {
				case wrote <- struct{}{}:
				default:
				}
			} else if !apierrors.IsConflict(err) && ctx.Err() == nil {
				t.Error(err)
			}
		}
	})
	var conflicts, writes atomic.Int32
	for _, name := range []string{own, other} {
		racers.Go(func() {
			cached := slices.Clone(created)
			has := make([]bool, objects)
			for round := range rounds {
				if round%5 == 4 {
					<-wrote // so that there is a race, however busy the machine is
				}
				for i := range objects {
					obj := cached[i].DeepCopy()
					edit := finalizer.Add
					if has[i] {
						edit = finalizer.Remove
					}
					// With the stale object, the call would do nothing: it already has the requested state.
					if slices.Contains(obj.Finalizers, name) != has[i] {
						obj = e.live(obj.Name) //nolint:contextcheck // the context of another client
					}
					if slices.Contains(obj.Finalizers, name) != has[i] {
						t.Errorf("round %d: %s is there: %v, want %v", round, name, !has[i], has[i])
						return
					}
					changed, err := edit(ctx, e.Client, obj, name)
					for range rounds {
						if !apierrors.IsConflict(err) {
							break
						}
						conflicts.Add(1) // ten conflicts in a row: nothing was written, and the call is repeated
						changed, err = edit(ctx, e.Client, obj, name)
					}
					if err != nil || !changed {
						t.Errorf("round %d: changed is %v, the error %v", round, changed, err)
						return
					}
					writes.Add(1)
					has[i] = !has[i]
					live := e.live(obj.Name) //nolint:contextcheck // the context of another client
					if n := count(live.Finalizers, name); (n == 1) != has[i] || n > 1 {
						t.Errorf("round %d: it should be there: %v, and the finalizers are %q", round, has[i], live.Finalizers)
						return
					}
					if round%3 == 0 {
						cached[i] = live // otherwise it stays stale
					}
				}
			}
		})
	}
	racers.Wait()
	cancel()
	hands.Wait()
	t.Logf("%d writes, beside %d foreign ones; %d times there were ten conflicts in a row", writes.Load(), foreign.Load(), conflicts.Load())
}

func count(list []string, name string) int {
	n := 0
	for _, entry := range list {
		if entry == name {
			n++
		}
	}
	return n
}

// Several clients add the first finalizer of a new object at the same time, in many rounds.
func TestConcurrentFirstFinalizers(t *testing.T) {
	const racers, rounds = 4, 60
	e := newEnv(t)
	for round := range rounds {
		obj := e.create(fmt.Sprint("new-", round))
		var wg sync.WaitGroup
		for r := range racers {
			mine := obj.DeepCopy()
			wg.Go(func() {
				if changed, err := finalizer.Add(t.Context(), e.Client, mine, fmt.Sprintf("shop.example.com/racer-%d", r)); !changed || err != nil {
					t.Errorf("changed is %v, the error %v", changed, err)
				}
			})
		}
		// One client adds its finalizer twice at once: the entry must not be there twice.
		for range 2 {
			mine := obj.DeepCopy()
			wg.Go(func() {
				if _, err := finalizer.Add(t.Context(), e.Client, mine, own); err != nil {
					t.Errorf("the error is %v", err)
				}
			})
		}
		wg.Wait()
		got := e.live(obj.Name).Finalizers
		slices.Sort(got)
		if len(got) != racers+1 || len(slices.Compact(slices.Clone(got))) != racers+1 {
			t.Fatalf("round %d: the finalizers are %q", round, got)
		}
	}
}
