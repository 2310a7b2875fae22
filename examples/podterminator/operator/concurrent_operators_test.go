package operator

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/examples/internal/exampletest"
	"github.com/evenkeel-go/evenkeel/examples/podterminator/api/v1alpha1"
	"github.com/evenkeel-go/evenkeel/leader"
)

func TestMinAliveWithTwoPodTerminators(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t place) {
		f := newFixture(t, 8)
		for _, name := range []string{"chaos", "chaos-too"} {
			pt := f.terminator(100, time.Hour)
			pt.Name, pt.Spec.MinAlive = name, 4
			f.create(pt)
		}
		f.operate(nil, Config{})
		exampletest.Eventually(t, "both have had a round", func(ctx context.Context) (bool, string) {
			list := &v1alpha1.PodTerminatorList{}
			if err := terminators(t).Get().Namespace(f.namespace).Resource(v1alpha1.Resource).Do(ctx).Into(list); err != nil {
				return false, err.Error()
			}
			for _, pt := range list.Items {
				if pt.Status.Rounds != 1 {
					return false, fmt.Sprintf("%s: %+v", pt.Name, pt.Status)
				}
			}
			return len(list.Items) == 2, ""
		})
		if n := len(f.alive(t.Context())); n != 4 {
			t.Errorf("%d Pods are alive, want the 4 of minAlive", n)
		}
	})
}

// During a rolling update, the old operator is in the middle of a round when the new one starts.
func TestOnlyLeaderWorks(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t place) {
		f := newFixture(t, 4)
		pt := f.terminator(50, time.Hour)
		pt.Spec.DryRun = true // the marks stay on the Pods
		f.create(pt)
		inTheMiddle, goOn := make(chan struct{}), make(chan struct{})
		release := sync.OnceFunc(func() { close(goOn) })
		defer release() // also when the test fails
		stall := sync.OnceFunc(func() { close(inTheMiddle); <-goOn })
		first, second := newElector(t), newElector(t)
		stopFirst := f.operate(func(config *rest.Config) {
			config.Wrap(func(next http.RoundTripper) http.RoundTripper {
				return roundTripper(func(request *http.Request) (*http.Response, error) {
					if request.Method == http.MethodPatch && strings.Contains(request.URL.Path, "/pods/") {
						stall()
					}
					return next.RoundTrip(request)
				})
			})
		}, Config{LeaderElector: first})
		<-inTheMiddle
		f.operate(nil, Config{LeaderElector: second})
		exampletest.Eventually(t, "the second has seen who leads", func(context.Context) (bool, string) {
			s := second.Status()
			return s.Leader == first.Status().Identity, fmt.Sprintf("%+v", s)
		})
		f.delete()
		release()
		stopFirst()
		f.until("the PodTerminator is gone", func(pt *v1alpha1.PodTerminator) bool { return pt == nil })
		if marked := f.marked(); len(marked) > 0 {
			t.Errorf("the PodTerminator is gone, but Pods %v are marked", marked)
		}
	})
}

func newElector(t place) *leader.Elector {
	t.Helper()
	elector, err := leader.New(leader.Config{
		Cluster: asOperator(t, nil), Namespace: "pod-terminator", Name: Name, RetryPeriod: 200 * time.Millisecond,
		LeaseDuration: 20 * time.Second, RenewDeadline: 15 * time.Second, // not lost on a busy machine
	})
	if err != nil {
		t.Fatal(err)
	}
	return elector
}
