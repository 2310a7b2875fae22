package client_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/evenkeel-go/evenkeel/client"
)

func TestWaitDeleted(t *testing.T) {
	t.Parallel()
	hold := func(s *waitServer) {
		s.Edit("deployments", webKey(), "somebody", func(obj map[string]any) bool {
			(&unstructured.Unstructured{Object: obj}).SetFinalizers([]string{"shop.example.com/disk"})
			return true
		})
	}
	release := func(s *waitServer) {
		s.Edit("deployments", webKey(), "somebody", func(obj map[string]any) bool {
			(&unstructured.Unstructured{Object: obj}).SetFinalizers(nil)
			return true
		})
	}
	for name, test := range map[string]struct {
		before []func(*waitServer)
		during []func(*waitServer) // changes, one per second
		after  time.Duration
		want   string // text of the error; "": no error
	}{
		"gone before": {before: []func(*waitServer){(*waitServer).delete}},
		"deleted":     {during: []func(*waitServer){(*waitServer).delete}, after: time.Second},
		"created again before": {
			before: []func(*waitServer){(*waitServer).delete, func(s *waitServer) { s.put(1) }},
		},
		"created again while no watch was open": {
			during: []func(*waitServer){func(s *waitServer) {
				s.HoldWatches("deployments")
				s.delete()
				s.put(1)
				s.Break("deployments", true)
			}},
			after: time.Second,
		},
		"held, and released": {
			during: []func(*waitServer){hold, (*waitServer).delete, release}, after: 3 * time.Second,
		},
		"held": {
			during: []func(*waitServer){hold, (*waitServer).delete}, after: time.Minute,
			want: "wait for the deletion of Deployment shop/web: context deadline exceeded after 1m0s: " +
				`it is being deleted since 2000-01-01T00:00:02Z, held by finalizers ["shop.example.com/disk"]`,
		},
		"not deleted": {
			after: time.Minute,
			want: "wait for the deletion of Deployment shop/web: context deadline exceeded after 1m0s: " +
				"it still exists (uid UID), and was not deleted",
		},
		"of a kind that is not served": {
			before: []func(*waitServer){func(s *waitServer) { s.serve(false) }},
			want:   "wait for the deletion of Deployment shop/web: kind Deployment in apps/v1: kind not served by the cluster",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newWaitServer(t)
				s.put(1)
				seen := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{
					Namespace: "shop", Name: "web", UID: s.Object("deployments", webKey()).GetUID(),
				}}
				for _, do := range test.before {
					do(s)
				}
				want := strings.ReplaceAll(test.want, "UID", string(seen.UID))
				var err error
				var after time.Duration
				ended, began := make(chan struct{}), time.Now()
				go func() { // waited for below
					defer close(ended)
					err = client.WaitDeleted(t.Context(), s.client, seen, client.Timeout(time.Minute))
					after = time.Since(began)
				}()
				for _, do := range test.during {
					time.Sleep(time.Second)
					do(s)
				}
				<-ended
				switch {
				case after < test.after || after > test.after+250*time.Millisecond: // a pause
					t.Errorf("after %s, want %s: %v", after, test.after, err)
				case want == "" && err != nil:
					t.Error(err)
				case want != "" && (err == nil || !strings.HasPrefix(err.Error(), want)):
					t.Errorf("the error is: %v\nwant: %s", err, want)
				}
			})
		})
	}
}
