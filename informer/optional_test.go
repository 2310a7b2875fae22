package informer_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/apitest/kindserver"
	"github.com/evenkeel-go/evenkeel/kube"
)

// fail makes every request fail with err.
func fail(server *kindserver.Server[configMap], err error) {
	server.Fail("list", err)
	server.Fail("watch", err)
}

// unavailable returns the errors for which an optional informer becomes degraded.
func unavailable() map[string]error {
	resource := corev1.Resource("configmaps")
	return map[string]error{
		"not served": kube.ErrNotServed,
		"not found":  apierrors.NewNotFound(resource, ""),
		"forbidden":  apierrors.NewForbidden(resource, "", errors.New("jane may not")),
		"no backend": apierrors.NewServiceUnavailable("the aggregated API is down"),
	}
}

// waits reports whether WaitSynced is still waiting after a minute.
func (f fixture) waits() bool {
	f.Helper()
	ctx, cancel := context.WithTimeout(f.Context(), time.Minute)
	defer cancel()
	err := f.informer.WaitSynced(ctx)
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		f.Errorf("WaitSynced: %v", err)
	}
	return err != nil
}

func TestOptionalInformerIsReadyWithoutItsKind(t *testing.T) {
	for name, problem := range unavailable() {
		for _, watchList := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					server := newServer(watchList, object("a", "1"))
					fail(server, problem)
					f := startWith(t, server, informer.Config[configMap]{Optional: true})
					if f.waits() {
						t.Error("WaitSynced waits for what there is not")
					}
					h := f.informer.Health()
					if h.Ready() != nil || !h.Optional || !h.Degraded || h.Synced || !errors.Is(h.Err, problem) || h.ErrSince.IsZero() {
						t.Errorf("while there is nothing: Ready %v, %+v", h.Ready(), h)
					}
					if n := strings.Count(f.logs.String(), "optional=true"); n != 1 {
						t.Errorf("logged %d times, want once:\n%s", n, f.logs)
					}
					f.expect()
					// The server of a kind that is served may have objects.
					if _, found, err := f.informer.Get(key("a")); found || (err == nil) != (name == "not served" || name == "forbidden") {
						t.Errorf("Get: %t, %v", found, err)
					}

					fail(server, nil) // it is installed, or permission is granted
					time.Sleep(20 * time.Second)
					f.expect("listed a")
					h = f.informer.Health()
					if h.Ready() != nil || h.Degraded || !h.Synced || h.Err != nil {
						t.Errorf("when it is there: Ready %v, %+v", h.Ready(), h)
					}
					server.Put(object("b", "1"))
					f.expect("added b")
				})
			})
		}
	}
}

// A Retriever of the program that returns ErrNotServed has checked that the kind was removed.
func TestOptionalInformerForgetsRemovedKind(t *testing.T) {
	for name, problem := range unavailable() {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := newServer(true, object("a", "1"), object("b", "1"))
				f := startWith(t, server, informer.Config[configMap]{Optional: true})
				f.expectOnce("listed a", "listed b")
				fail(server, problem)
				server.DropWatches()
				time.Sleep(20 * time.Second)
				f.expect()
				_, _, err := f.informer.Get(key("a"))
				if (err == nil) != (name == "forbidden" || name == "no backend") {
					t.Errorf("read: %v", err)
				}
				time.Sleep(2 * time.Minute)
				removed := name == "not served"
				if removed {
					f.expectOnce("deleted a", "deleted b")
				} else {
					f.expect()
				}
				if n := f.informer.Len(); (n == 2) == removed || (n == 0) != removed {
					t.Errorf("%d objects are kept", n)
				}
				if h := f.informer.Health(); h.Ready() != nil || !h.Degraded || h.Err == nil {
					t.Errorf("while it is gone: Ready %v, %+v", h.Ready(), h)
				}
				server.Delete(key("b"))
				server.Put(object("c", "1"))
				fail(server, nil)
				time.Sleep(20 * time.Second)
				if removed {
					f.expectOnce("added a", "added c")
				} else {
					f.expectOnce("added c", "deleted b")
				}
				if h := f.informer.Health(); h.Ready() != nil || h.Degraded || h.Err != nil || h.Objects != 2 {
					t.Errorf("when it is back: Ready %v, %+v", h.Ready(), h)
				}
			})
		})
	}
}

func TestRequiredInformerWaits(t *testing.T) {
	for name, problem := range unavailable() {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := newServer(true, object("a", "1"))
				fail(server, problem)
				f := start(t, server, nil)
				if !f.waits() {
					t.Error("WaitSynced has returned")
				}
				if h := f.informer.Health(); !errors.Is(h.Ready(), problem) || h.Degraded || h.Optional {
					t.Errorf("Ready %v, %+v", h.Ready(), h)
				}
				fail(server, nil)
				if f.waits() {
					t.Error("WaitSynced waits on")
				}
				f.expect("listed a")
				fail(server, problem)
				server.DropWatches()
				time.Sleep(20 * time.Second)
				f.expect() // the error does not show that the objects were deleted
				if f.informer.Len() != 1 || f.informer.Ready() == nil {
					t.Errorf("%d objects, Ready %v", f.informer.Len(), f.informer.Ready())
				}
			})
		})
	}
}

// Optional applies if the cluster does not serve the kind, but not if it is unreachable.
func TestOptionalInformerWaitsForUnreachableServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer(true, object("a", "1"))
		fail(server, errors.New("connection refused"))
		f := startWith(t, server, informer.Config[configMap]{Optional: true})
		if !f.waits() {
			t.Error("WaitSynced has returned")
		}
		if h := f.informer.Health(); h.Degraded || h.Ready() == nil {
			t.Errorf("Ready %v, %+v", h.Ready(), h)
		}
		fail(server, nil)
		if f.waits() {
			t.Error("WaitSynced waits on")
		}
		f.expect("listed a")
	})
}

// A forbidden part degrades the informer. A part that is down makes it fail.
func TestOptionalInformerOfSeveralParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		left, right := holding("l"), holding("r")
		fail(right, unavailable()["forbidden"])
		f := startWith(t, nil, informer.Config[configMap]{Optional: true, Retriever: informer.Combine[configMap](left, right)})
		f.expect("listed l")
		if f.waits() {
			t.Error("WaitSynced waits for the part that is forbidden")
		}
		if h := f.informer.Health(); h.Ready() != nil || !h.Degraded || h.Synced {
			t.Errorf("Ready %v, %+v", h.Ready(), h)
		}
		fail(left, errors.New("down"))
		left.DropWatches()
		time.Sleep(20 * time.Second)
		if h := f.informer.Health(); h.Ready() == nil || h.Degraded {
			t.Errorf("with the other down: Ready %v, %+v", h.Ready(), h)
		}
		fail(left, nil)
		fail(right, nil)
		time.Sleep(time.Minute)
		f.expect("listed r")
		if h := f.informer.Health(); h.Ready() != nil || h.Degraded || !h.Synced {
			t.Errorf("with both there: Ready %v, %+v", h.Ready(), h)
		}
	})
}
