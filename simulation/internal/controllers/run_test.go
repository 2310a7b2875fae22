package controllers_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel-go/evenkeel/simulation/internal/controllers"
)

// Clients write while Run works. No object is created twice, and nothing is left undone.
func TestRunBesideOtherClients(t *testing.T) {
	t.Parallel()
	inWorld(t, func(t *testing.T, w *world) {
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() {
			if err := w.manager.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		var clients sync.WaitGroup
		for i := range 8 {
			clients.Go(func() {
				name := fmt.Sprintf("web-%d", i)
				w.apply(deployments, strings.NewReplacer("name: web}", "name: "+name+"}", "app: web", "app: "+name).Replace(web("a:1", "")))
				time.Sleep(time.Second)
				w.patch(deployments, "one/"+name, `{spec: {template: {spec: {containers: [{name: c, image: "a:2"}]}}}}`)
			})
		}
		clients.Wait()
		time.Sleep(time.Minute)
		stop()
		running.Wait()
		created := 0
		for _, request := range w.requests {
			if strings.HasPrefix(request, "replicaset-controller POST ") {
				created++
			}
		}
		if pods := len(w.podNames()); pods != 24 || created != 48 {
			t.Errorf("%d Pods exist and %d were created, want 24 and 48", pods, created)
		}
		if pending := w.manager.Pending(); len(pending) > 0 {
			t.Errorf("work is pending: %v", pending)
		}
	})
}

// The requests of two runs are the same, one by one.
func TestRequestsAreReproducible(t *testing.T) {
	t.Parallel()
	var runs [2]string
	for i := range runs {
		inWorld(t, func(_ *testing.T, w *world) {
			w.pods = func(*corev1.Pod) controllers.PodBehavior {
				return controllers.PodBehavior{ExitAfter: 7 * time.Second, ExitCode: 1}
			}
			w.fail = func(req *http.Request) int {
				if len(w.requests)%7 == 3 && req.Method == http.MethodPut {
					w.requests = append(w.requests, "failed "+req.URL.Path)
					return http.StatusConflict
				}
				return 0
			}
			w.apply(deployments, web("a:1", ""))
			w.apply(jobsPath, job(""))
			owner := w.apply(secrets, "{metadata: {name: owner}}")
			for i := range 5 {
				w.apply(cms, child(fmt.Sprint("dependent-", i), "Secret owner "+owner))
			}
			w.delete(secrets, "one/owner", "")
			w.run(3 * time.Second)
			w.patch(deployments, "one/web", `{spec: {template: {spec: {containers: [{name: c, image: "a:2"}]}}}}`)
			w.run(time.Minute)
			w.delete(deployments, "one/web", "Foreground")
			w.delete("v1/namespaces", "one", "")
			w.run(time.Minute)
			if w.get("v1/namespaces", "one") != nil {
				w.t.Errorf("the namespace exists; writes:\n%s", strings.Join(w.requests, "\n"))
			}
			runs[i] = strings.Join(w.requests, "\n")
		})
	}
	if runs[0] != runs[1] {
		t.Errorf("the requests differ:\n%s\n\n%s", runs[0], runs[1])
	}
}

func TestPods(t *testing.T) {
	t.Parallel()
	const pod = `{metadata: {name: a}, spec: {containers: [{name: c, image: a}]}}`
	state := func(w *world) string {
		pod := into[corev1.Pod](w, podsPath, "one/a")
		text := string(pod.Status.Phase)
		for _, c := range pod.Status.ContainerStatuses {
			text += fmt.Sprintf(" ready=%t restarts=%d", c.Ready, c.RestartCount)
			if c.State.Waiting != nil {
				text += " " + c.State.Waiting.Reason
			}
		}
		return text
	}
	inWorlds(t, map[string]func(w *world){
		"ready": func(w *world) {
			w.apply(podsPath, pod)
			w.run(time.Second / 2)
			w.want("before", state(w), "Running ready=false restarts=0")
			w.run(time.Second / 2)
			w.want("after", state(w), "Running ready=true restarts=0")
			second := strings.Replace(pod, "name: a", "name: b", 1)
			w.apply(podsPath, second)
			w.run(0)
			w.want("nodes", into[corev1.Pod](w, podsPath, "one/a").Spec.NodeName+" "+into[corev1.Pod](w, podsPath, "one/b").Spec.NodeName, "node-0 node-1")
		},
		"crashes": func(w *world) {
			w.pods = func(*corev1.Pod) controllers.PodBehavior {
				return controllers.PodBehavior{ExitAfter: 5 * time.Second, ExitCode: 1}
			}
			w.apply(podsPath, pod)
			for _, step := range []struct {
				after time.Duration
				want  string
			}{
				{4 * time.Second, "Running ready=true restarts=0"},
				{2 * time.Second, "Running ready=true restarts=1"}, // the first restart is at once
				{5 * time.Second, "Running ready=false restarts=1 CrashLoopBackOff"},
				{10 * time.Second, "Running ready=true restarts=2"},
				{5 * time.Second, "Running ready=false restarts=2 CrashLoopBackOff"},
				{10 * time.Second, "Running ready=false restarts=2 CrashLoopBackOff"}, // now 20 s
			} {
				w.run(step.after)
				w.want("state", state(w), step.want)
			}
		},
		"image": func(w *world) {
			fails := true
			w.pods = func(*corev1.Pod) controllers.PodBehavior { return controllers.PodBehavior{ImagePullFails: fails} }
			w.apply(podsPath, pod)
			w.run(time.Minute)
			w.want("state", state(w), "Pending ready=false restarts=0 ImagePullBackOff")
			fails = false
			w.run(time.Minute)
			w.want("state", state(w), "Running ready=true restarts=0")
		},
		"unschedulable": func(w *world) {
			w.pods = func(*corev1.Pod) controllers.PodBehavior { return controllers.PodBehavior{Unschedulable: true} }
			w.apply(podsPath, pod)
			w.run(time.Minute)
			w.want("condition", w.conditions(podsPath, "one/a", "False"), "PodScheduled: Unschedulable: 0/2 nodes are available: 2 Insufficient cpu.")
			w.delete(podsPath, "one/a", "")
			w.expect(podsPath, "")
		},
		"graceful deletion": func(w *world) {
			w.pods = func(*corev1.Pod) controllers.PodBehavior { return controllers.PodBehavior{StopAfter: 10 * time.Second} }
			w.apply(podsPath, pod)
			w.run(time.Minute)
			w.delete(podsPath, "one/a", "")
			w.run(9 * time.Second)
			w.expect(podsPath, "a(deleting)")
			w.run(time.Second)
			w.expect(podsPath, "")
		},
		"grace period": func(w *world) {
			w.pods = func(*corev1.Pod) controllers.PodBehavior { return controllers.PodBehavior{StopAfter: time.Hour} }
			w.apply(podsPath, pod)
			w.run(time.Minute)
			w.delete(podsPath, "one/a", "")
			w.run(29 * time.Second)
			w.expect(podsPath, "a(deleting)")
			w.run(time.Second)
			w.expect(podsPath, "")
		},
		"readiness gate": func(w *world) {
			w.apply(podsPath, strings.Replace(pod, "containers:", "readinessGates: [{conditionType: example.org/x}], containers:", 1))
			w.run(time.Minute)
			w.want("condition", w.conditions(podsPath, "one/a", "False"),
				`Ready: ReadinessGatesNotReady: corresponding condition of pod readiness gate "example.org/x" does not exist.`)
		},
	})
}
