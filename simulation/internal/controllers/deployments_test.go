package controllers_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel-go/evenkeel/simulation/internal/controllers"
)

const (
	deployments = "apps/v1/deployments"
	replicaSets = "apps/v1/replicasets"
	podsPath    = "v1/pods"
)

// web returns the manifest of a Deployment with 3 Pods. spec is added to its spec.
func web(image, spec string) string {
	return `{metadata: {name: web}, spec: {replicas: 3, selector: {matchLabels: {app: web}},
		template: {metadata: {labels: {app: web}}, spec: {containers: [{name: c, image: ` + image + `}]}}` + spec + `}}`
}

// into returns an object with its Go type.
func into[T any](w *world, resource, key string) *T {
	w.t.Helper()
	text, err := json.Marshal(w.get(resource, key))
	if err != nil {
		w.t.Fatal(err)
	}
	obj := new(T)
	if err := json.Unmarshal(text, obj); err != nil {
		w.t.Fatal(err)
	}
	return obj
}

// counts returns the numbers in the status of Deployment web.
func (w *world) counts() string {
	s := into[appsv1.Deployment](w, deployments, "one/web").Status
	return fmt.Sprintf("replicas=%d updated=%d ready=%d available=%d unavailable=%d",
		s.Replicas, s.UpdatedReplicas, s.ReadyReplicas, s.AvailableReplicas, s.UnavailableReplicas)
}

// progress returns the reasons of the conditions of Deployment web.
func (w *world) progress() string {
	var reasons []string
	for _, c := range into[appsv1.Deployment](w, deployments, "one/web").Status.Conditions {
		reasons = append(reasons, c.Reason)
	}
	return strings.Join(reasons, " ")
}

// sizes returns the sizes of the ReplicaSets by image.
func (w *world) sizes() string {
	w.t.Helper()
	_, list := w.send("GET", path(replicaSets, "one/"), "", nil)
	text, _ := json.Marshal(list)
	var sets appsv1.ReplicaSetList
	if err := json.Unmarshal(text, &sets); err != nil {
		w.t.Fatal(err)
	}
	byImage := map[string]int32{}
	for _, set := range sets.Items {
		byImage[set.Spec.Template.Spec.Containers[0].Image] = *set.Spec.Replicas
	}
	return strings.TrimPrefix(fmt.Sprint(byImage), "map")
}

func (w *world) want(what, got, want string) {
	w.t.Helper()
	if got != want {
		w.t.Errorf("%s: %s, want %s; writes of the controllers:\n%s", what, got, want, strings.Join(w.requests, "\n"))
	}
}

const allAvailable = "replicas=3 updated=3 ready=3 available=3 unavailable=0"

func TestDeployment(t *testing.T) {
	t.Parallel()
	inWorlds(t, map[string]func(w *world){
		"create": func(w *world) {
			w.apply(deployments, web("a:1", ""))
			w.run(0)
			w.want("status at once", w.counts(), "replicas=3 updated=3 ready=0 available=0 unavailable=3")
			w.want("conditions at once", w.progress(), "MinimumReplicasUnavailable ReplicaSetUpdated")
			w.run(time.Second)
			w.want("status", w.counts(), allAvailable)
			w.want("conditions", w.progress(), "MinimumReplicasAvailable NewReplicaSetAvailable")
			before := len(w.requests)
			w.run(time.Hour)
			w.want("writes of an idle Deployment", fmt.Sprint(w.requests[before:]), "[]")
		},
		"update": func(w *world) {
			w.apply(deployments, web("a:1", ", strategy: {rollingUpdate: {maxSurge: 1, maxUnavailable: 0}}"))
			w.run(time.Minute)
			w.patch(deployments, "one/web", `{spec: {template: {spec: {containers: [{name: c, image: "a:2"}]}}}}`)
			w.run(0)
			w.want("sizes", w.sizes(), "[a:1:3 a:2:1]")
			w.run(time.Second)
			w.want("sizes", w.sizes(), "[a:1:2 a:2:2]")
			w.run(time.Minute)
			w.want("sizes", w.sizes(), "[a:1:0 a:2:3]")
			w.want("status", w.counts(), allAvailable)
			w.patch(deployments, "one/web", `{spec: {template: {spec: {containers: [{name: c, image: "a:1"}]}}}}`)
			w.run(time.Minute)
			w.want("sizes after rollback", w.sizes(), "[a:1:3 a:2:0]")
			w.want("revision", into[appsv1.Deployment](w, deployments, "one/web").Annotations["deployment.kubernetes.io/revision"], "3")
		},
		"update that fails": func(w *world) {
			w.pods = func(pod *corev1.Pod) controllers.PodBehavior {
				return controllers.PodBehavior{ImagePullFails: pod.Spec.Containers[0].Image == "a:2"}
			}
			w.apply(deployments, web("a:1", ", progressDeadlineSeconds: 60"))
			w.run(time.Minute)
			w.patch(deployments, "one/web", `{spec: {template: {spec: {containers: [{name: c, image: "a:2"}]}}}}`)
			w.run(50 * time.Second)
			w.want("sizes", w.sizes(), "[a:1:3 a:2:1]")
			w.want("conditions", w.progress(), "MinimumReplicasAvailable ReplicaSetUpdated")
			w.run(15 * time.Second)
			w.want("conditions after the deadline", w.progress(), "MinimumReplicasAvailable ProgressDeadlineExceeded")
			w.patch(deployments, "one/web", `{spec: {template: {spec: {containers: [{name: c, image: "a:1"}]}}}}`)
			w.run(time.Minute)
			w.want("sizes after rollback", w.sizes(), "[a:1:3 a:2:0]")
			w.want("conditions after rollback", w.progress(), "MinimumReplicasAvailable NewReplicaSetAvailable")
		},
		"recreate": func(w *world) {
			w.pods = func(*corev1.Pod) controllers.PodBehavior { return controllers.PodBehavior{StopAfter: 3 * time.Second} }
			w.apply(deployments, web("a:1", ", strategy: {type: Recreate}"))
			w.run(time.Minute)
			w.patch(deployments, "one/web", `{spec: {template: {spec: {containers: [{name: c, image: "a:2"}]}}}}`)
			w.run(2 * time.Second)
			w.want("sizes while old Pods end", w.sizes(), "[a:1:0]")
			w.run(2 * time.Second)
			w.want("sizes", w.sizes(), "[a:1:0 a:2:3]")
			w.run(2 * time.Second)
			w.want("status", w.counts(), allAvailable)
		},
		"scale": func(w *world) {
			w.apply(deployments, web("a:1", ""))
			w.run(time.Minute)
			w.patch(deployments, "one/web", `{spec: {replicas: 5}}`)
			w.run(time.Minute)
			w.want("status", w.counts(), "replicas=5 updated=5 ready=5 available=5 unavailable=0")
			w.patch(deployments, "one/web", `{spec: {replicas: 0}}`)
			w.run(time.Minute)
			w.want("status", w.counts(), "replicas=0 updated=0 ready=0 available=0 unavailable=0")
			w.expect(podsPath, "")
		},
		"scale during an update": func(w *world) {
			w.pods = func(pod *corev1.Pod) controllers.PodBehavior {
				return controllers.PodBehavior{NeverReady: pod.Spec.Containers[0].Image == "a:2"}
			}
			w.apply(deployments, web("a:1", ", strategy: {rollingUpdate: {maxSurge: 2, maxUnavailable: 1}}"))
			w.patch(deployments, "one/web", `{spec: {replicas: 8}}`)
			w.run(time.Minute)
			w.patch(deployments, "one/web", `{spec: {template: {spec: {containers: [{name: c, image: "a:2"}]}}}}`)
			w.run(time.Minute)
			w.want("sizes", w.sizes(), "[a:1:7 a:2:3]")
			w.patch(deployments, "one/web", `{spec: {replicas: 18}}`)
			w.run(time.Minute)
			w.want("sizes", w.sizes(), "[a:1:14 a:2:6]")
			w.patch(deployments, "one/web", `{spec: {replicas: 4}}`)
			w.run(0)
			w.want("sizes", w.sizes(), "[a:1:3 a:2:3]")
		},
		"pause": func(w *world) {
			w.apply(deployments, web("a:1", ""))
			w.run(time.Minute)
			w.patch(deployments, "one/web", `{spec: {paused: true, template: {spec: {containers: [{name: c, image: "a:2"}]}}}}`)
			w.run(time.Minute)
			w.want("sizes", w.sizes(), "[a:1:3]")
			w.want("conditions", w.progress(), "MinimumReplicasAvailable DeploymentPaused")
			w.patch(deployments, "one/web", `{spec: {replicas: 4}}`)
			w.run(time.Minute)
			w.want("sizes", w.sizes(), "[a:1:4]")
			w.patch(deployments, "one/web", `{spec: {paused: false}}`)
			w.run(time.Minute)
			w.want("sizes", w.sizes(), "[a:1:0 a:2:4]")
		},
		"Pods become unavailable after the deadline of an update": func(w *world) {
			w.apply(deployments, web("a:1", ", progressDeadlineSeconds: 10"))
			w.run(time.Minute)
			w.pods = func(*corev1.Pod) controllers.PodBehavior { return controllers.PodBehavior{NeverReady: true} }
			w.delete(podsPath, "one/"+w.podNames()[0], "")
			w.run(time.Minute)
			w.want("status", w.counts(), "replicas=3 updated=3 ready=2 available=2 unavailable=1")
			w.want("conditions", w.progress(), "NewReplicaSetAvailable MinimumReplicasUnavailable")
		},
		"history": func(w *world) {
			w.apply(deployments, web("a:0", ", revisionHistoryLimit: 2"))
			for i := 1; i < 5; i++ {
				w.patch(deployments, "one/web", fmt.Sprintf(`{spec: {template: {spec: {containers: [{name: c, image: "a:%d"}]}}}}`, i))
				w.run(time.Minute)
			}
			w.want("sizes", w.sizes(), "[a:2:0 a:3:0 a:4:3]")
		},
		"delete": func(w *world) {
			w.apply(deployments, web("a:1", ""))
			w.run(time.Minute)
			w.delete(deployments, "one/web", "Foreground")
			w.run(0)
			w.expect(deployments, "")
			w.expect(replicaSets, "")
			w.expect(podsPath, "")
		},
		"orphans and adopts": func(w *world) {
			w.apply(deployments, web("a:1", ""))
			w.run(time.Minute)
			w.delete(deployments, "one/web", "Orphan")
			w.run(time.Minute)
			w.want("sizes", w.sizes(), "[a:1:3]")
			w.apply(deployments, web("a:1", ""))
			w.run(time.Minute)
			w.want("sizes", w.sizes(), "[a:1:3]")
			w.want("status", w.counts(), allAvailable)
			w.want("conditions", w.progress(), "MinimumReplicasAvailable NewReplicaSetAvailable")
		},
		"a Pod is deleted, released, or fails": func(w *world) {
			w.apply(deployments, web("a:1", ", minReadySeconds: 10"))
			w.run(10 * time.Second)
			w.want("status before minReadySeconds", w.counts(), "replicas=3 updated=3 ready=3 available=0 unavailable=3")
			w.run(time.Second)
			w.want("status", w.counts(), allAvailable)
			pods := w.podNames()
			w.delete(podsPath, "one/"+pods[0], "")
			w.patch(podsPath, "one/"+pods[1], `{metadata: {labels: {app: other}}}`)
			w.run(time.Minute)
			w.want("status", w.counts(), allAvailable)
			if refs := w.owners(podsPath, "one/"+pods[1]); refs != "" {
				w.t.Errorf("a released Pod has the owners %s", refs)
			}
			w.want("number of Pods", fmt.Sprint(len(w.podNames())), "4")
			w.patch(podsPath, "one/"+pods[1], `{metadata: {labels: {app: web}}}`)
			w.run(time.Minute)
			w.want("number of Pods after the adoption", fmt.Sprint(len(w.podNames())), "3")
		},
	})
}

// podNames returns the names of the Pods in namespace one.
func (w *world) podNames() (names []string) {
	w.t.Helper()
	_, list := w.send("GET", path(podsPath, "one/"), "", nil)
	for _, item := range list["items"].([]any) {
		names = append(names, item.(map[string]any)["metadata"].(map[string]any)["name"].(string))
	}
	return names
}
