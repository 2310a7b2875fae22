package controllerruntime

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// newManager returns a manager without listeners. Two controllers of one process may have one name.
func newManager(t *testing.T, cfg *rest.Config, change func(*ctrl.Options)) ctrl.Manager {
	t.Helper()
	skip := true
	options := ctrl.Options{
		Logger: logr.Discard(), Metrics: server.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
		Controller: config.Controller{SkipNameValidation: &skip},
	}
	if change != nil {
		change(&options)
	}
	mgr, err := ctrl.NewManager(cfg, options)
	if err != nil {
		t.Fatal(err)
	}
	return mgr
}

// start runs a manager. The returned function ends it and waits.
func start(t *testing.T, mgr ctrl.Manager) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }() // stop waits for it
	return func() {
		t.Helper()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// counter counts the hours in which it runs in an annotation of each ConfigMap.
type counter struct{ client.Client }

func (c counter) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var cm corev1.ConfigMap
	if err := c.Get(ctx, req.NamespacedName, &cm); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	hour := strconv.Itoa(time.Now().Hour())
	if cm.Annotations["hour"] == hour {
		return ctrl.Result{RequeueAfter: time.Hour}, nil
	}
	runs, _ := strconv.Atoi(cm.Annotations["runs"])
	before := cm.DeepCopy()
	cm.Annotations = map[string]string{"hour": hour, "runs": strconv.Itoa(runs + 1)}
	return ctrl.Result{RequeueAfter: time.Hour}, c.Patch(ctx, &cm, client.MergeFrom(before))
}

// A manager with its cache, its client and a controller runs for a day of virtual time, and ends without goroutines: the
// bubble waits for them.
func TestManagerInBubble(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		c := newClient(t, s.RESTConfig("tests"))
		createConfigMaps(t.Context(), t, c, 10)
		mgr := newManager(t, s.RESTConfig("operator"), nil)
		if err := ctrl.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Complete(counter{mgr.GetClient()}); err != nil {
			t.Fatal(err)
		}
		stop := start(t, mgr)
		// To the end of the day: the resync, about every ten hours, moves the next run.
		midnight := time.Now().Truncate(24 * time.Hour).Add(24 * time.Hour)
		time.Sleep(time.Until(midnight) - time.Millisecond)
		stop()
		if delay := time.Since(midnight); delay > 0 {
			t.Errorf("the manager ended %v late", delay)
		}
		list, err := c.CoreV1().ConfigMaps(namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, cm := range list.Items {
			if cm.Annotations["runs"] != "24" {
				t.Errorf("%s: runs %v, want 24", cm.Name, cm.Annotations)
			}
		}
		if len(list.Items) != 10 {
			t.Errorf("%d ConfigMaps, want 10", len(list.Items))
		}
	})
}

// An error in one bubble does not delay a later error in another one.
func TestErrorsOfBubblesDoNotWaitForEachOther(t *testing.T) {
	t.Parallel()
	for _, age := range []time.Duration{48 * time.Hour, 0} {
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(age)
			before := time.Now()
			utilruntime.HandleError(errors.New("test"))
			if waited := time.Since(before); waited > time.Second {
				t.Errorf("HandleError waited %v", waited)
			}
		})
	}
}

// Of two managers with leader election, the second works after the first has released its Lease.
func TestLeaderElectionOfManagersInBubble(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		c := newClient(t, s.RESTConfig("tests"))
		holder := func() string {
			lease, err := c.CoordinationV1().Leases(namespace).Get(t.Context(), "operator", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if lease.Spec.HolderIdentity == nil {
				return ""
			}
			return *lease.Spec.HolderIdentity
		}
		var managers []ctrl.Manager
		var stops []func()
		var ran [2]bool
		for i := range 2 {
			mgr := newManager(t, s.RESTConfig(fmt.Sprint("operator-", i)), func(o *ctrl.Options) {
				o.LeaderElection, o.LeaderElectionID, o.LeaderElectionNamespace = true, "operator", namespace
				o.LeaderElectionReleaseOnCancel = true
			})
			if err := mgr.Add(leading{&ran[i]}); err != nil {
				t.Fatal(err)
			}
			managers, stops = append(managers, mgr), append(stops, start(t, mgr))
			<-time.After(time.Minute)
		}
		select {
		case <-managers[1].Elected():
			t.Error("both managers lead")
		default:
		}
		first := holder()
		stops[0]()
		time.Sleep(time.Minute)
		if second := holder(); first == "" || second == "" || first == second {
			t.Errorf("holders %q, then %q", first, second)
		}
		stops[1]()
		if ran != [2]bool{true, true} {
			t.Errorf("led: %v, want both", ran)
		}
	})
}

// leading is a Runnable that needs leadership, and waits for its end.
type leading struct{ ran *bool }

func (l leading) Start(ctx context.Context) error {
	*l.ran = true
	<-ctx.Done()
	return nil
}

func (leading) NeedLeaderElection() bool { return true }
