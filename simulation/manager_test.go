package simulation_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel-go/evenkeel/leader"
	"github.com/evenkeel-go/evenkeel/manager"
	"github.com/evenkeel-go/evenkeel/simulation"
)

// Two replicas of a program with a manager: the second one works after the first one has stopped.
func TestManagers(t *testing.T) {
	t.Parallel()
	simulation.Test(t, simulation.Config{}, func(t *testing.T, c *simulation.Cluster) {
		run := func(identity string) (stop func()) {
			m, err := manager.New(manager.Config{
				LeaderElection: &leader.Config{Cluster: c.Connect("copier"), Namespace: "default", Name: "copier", Identity: identity},
				Runnables:      []manager.Runnable{{Runner: newCopier(t, c)}},
				IgnoreSignals:  true,
			})
			if err != nil {
				t.Fatal(err)
			}
			stop = c.Run(m)
			c.Advance(20 * time.Second) // the duration of the lease: a new one is not held before
			if err := m.Ready(); err != nil {
				t.Errorf("%s: %v", identity, err)
			}
			return stop
		}
		stop := run("first")
		run("second")
		c.Apply(`{apiVersion: v1, kind: ConfigMap, metadata: {name: motto}, data: {text: even keel}}`)
		c.Settle()
		if secret := simulation.Get[*corev1.Secret](c, "default/motto"); string(secret.Data["text"]) != "even keel" {
			t.Errorf("the first replica wrote %q", secret.Data)
		}
		stop()
		c.Apply(`{apiVersion: v1, kind: ConfigMap, metadata: {name: motto}, data: {text: changed}}`)
		c.Advance(5 * time.Second) // the second replica finds the released lease
		c.Settle()
		if secret := simulation.Get[*corev1.Secret](c, "default/motto"); string(secret.Data["text"]) != "changed" {
			t.Errorf("the second replica wrote %q", secret.Data)
		}
	})
}
