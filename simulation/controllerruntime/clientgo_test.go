package controllerruntime

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// client-go's informers follow the server for a day of virtual time, through ended watches, compactions and resyncs.
func TestSharedInformersInBubble(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		c := newClient(t, s.RESTConfig("tests"))
		createConfigMaps(t.Context(), t, c, 10)
		ctx, cancel := context.WithCancel(t.Context())
		factory := informers.NewSharedInformerFactory(newClient(t, s.RESTConfig("informers")), time.Hour)
		lister := factory.Core().V1().ConfigMaps().Lister()
		factory.Start(ctx.Done())
		factory.WaitForCacheSync(ctx.Done())
		for hour := range 24 {
			name := []string{"cm-000", "cm-001", "cm-002"}[hour%3]
			cm, err := c.CoreV1().ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			cm.Data = map[string]string{"hour": time.Now().Format(time.TimeOnly)}
			if _, err := c.CoreV1().ConfigMaps(namespace).Update(ctx, cm, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			switch hour % 3 {
			case 1:
				s.CloseWatches()
			case 2:
				s.Compact()
				s.CloseWatches()
			}
			time.Sleep(time.Hour)
			cached, err := lister.ConfigMaps(namespace).Get(name)
			if err != nil || cached.Data["hour"] != cm.Data["hour"] {
				t.Errorf("hour %d: cached %v %v, want %v", hour, cached, err, cm.Data)
			}
		}
		if all, err := lister.List(labels.Everything()); err != nil || len(all) != 10 {
			t.Errorf("%d objects %v, want 10", len(all), err)
		}
		cancel()
		factory.Shutdown()
	})
}

// client-go's leader election renews its Lease for a virtual hour, and releases it.
func TestLeaderElectionInBubble(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		c := newClient(t, s.RESTConfig("tests"))
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		var led time.Duration
		leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
			Lock: &resourcelock.LeaseLock{
				LeaseMeta: metav1.ObjectMeta{Namespace: namespace, Name: "operator"}, Client: c.CoordinationV1(),
				LockConfig: resourcelock.ResourceLockConfig{Identity: "one"},
			},
			LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second, ReleaseOnCancel: true,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(ctx context.Context) {
					began := time.Now()
					<-ctx.Done()
					led = time.Since(began)
				},
				OnStoppedLeading: func() {},
			},
		})
		synctest.Wait()
		if led < 59*time.Minute {
			t.Errorf("led for %v, want an hour", led)
		}
		lease, err := c.CoordinationV1().Leases(namespace).Get(t.Context(), "operator", metav1.GetOptions{})
		if err != nil || lease.Spec.HolderIdentity != nil && *lease.Spec.HolderIdentity != "" {
			t.Errorf("lease %v %v, want it released", lease, err)
		}
	})
}
