package controllers_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel-go/evenkeel/internal/testlength"
	"github.com/evenkeel-go/evenkeel/simulation/internal/controllers"
)

const (
	statefulSets = "apps/v1/statefulsets"
	revisions    = "apps/v1/controllerrevisions"
	claims       = "v1/persistentvolumeclaims"
)

// db returns the manifest of a StatefulSet with 3 Pods. spec is added to its spec.
func db(spec string) string {
	return `{metadata: {name: db, annotations: {note: copied}}, spec: {replicas: 3, serviceName: peers, selector: {matchLabels: {app: db}},
		template: {metadata: {labels: {app: db}}, spec: {containers: [{name: c, image: "a:1"}]}}` + spec + `}}`
}

const withClaims = `, volumeClaimTemplates: [{metadata: {name: data}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}]`

func (w *world) setImage(version int) {
	w.patch(statefulSets, "one/db", fmt.Sprintf(`{spec: {template: {spec: {containers: [{name: c, image: "a:%d"}]}}}}`, version))
}

// podList returns the Pods in namespace one.
func (w *world) podList() []corev1.Pod {
	w.t.Helper()
	_, list := w.send("GET", path(podsPath, "one/"), "", nil)
	text, _ := json.Marshal(list)
	var pods corev1.PodList
	if err := json.Unmarshal(text, &pods); err != nil {
		w.t.Fatal(err)
	}
	return pods.Items
}

// images returns the Pods of StatefulSet db with their images.
func (w *world) images() string {
	var texts []string
	for _, pod := range w.podList() {
		text := pod.Name + "=" + pod.Spec.Containers[0].Image
		if pod.DeletionTimestamp != nil {
			text += "(deleting)"
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, " ")
}

// setStatus returns the numbers in the status of StatefulSet db.
func (w *world) setStatus() string {
	s := into[appsv1.StatefulSet](w, statefulSets, "one/db").Status
	return fmt.Sprintf("replicas=%d ready=%d available=%d current=%d updated=%d complete=%t",
		s.Replicas, s.ReadyReplicas, s.AvailableReplicas, s.CurrentReplicas, s.UpdatedReplicas, s.CurrentRevision == s.UpdateRevision)
}

const allUpdated = "replicas=3 ready=3 available=3 current=3 updated=3 complete=true"

func TestStatefulSet(t *testing.T) {
	t.Parallel()
	inWorlds(t, map[string]func(w *world){
		"create in order": func(w *world) {
			w.apply(statefulSets, db(""))
			for i, want := range []string{"db-0", "db-0 db-1", "db-0 db-1 db-2"} {
				w.run(0)
				w.want(fmt.Sprintf("after %d s", i), strings.Join(w.podNames(), " "), want)
				w.run(time.Second)
			}
			w.want("status", w.setStatus(), allUpdated)
			pod, set := into[corev1.Pod](w, podsPath, "one/db-1"), into[appsv1.StatefulSet](w, statefulSets, "one/db")
			w.want("labels", fmt.Sprint(pod.Labels), "map[app:db apps.kubernetes.io/pod-index:1 controller-revision-hash:"+set.Status.UpdateRevision+
				" statefulset.kubernetes.io/pod-name:db-1]")
			w.want("names", pod.Spec.Hostname+"."+pod.Spec.Subdomain, "db-1.peers")
			revision := into[appsv1.ControllerRevision](w, revisions, "one/"+set.Status.UpdateRevision)
			w.want("revision", fmt.Sprintln(revision.Revision, revision.Annotations, w.owners(revisions, "one/"+revision.Name)), "1 map[note:copied] db\n")
			before := len(w.requests)
			w.run(time.Hour)
			w.want("writes of an idle StatefulSet", fmt.Sprint(w.requests[before:]), "[]")
		},
		"parallel": func(w *world) {
			w.pods = func(*corev1.Pod) controllers.PodBehavior { return controllers.PodBehavior{StopAfter: 5 * time.Second} }
			w.apply(statefulSets, db(", podManagementPolicy: Parallel, ordinals: {start: 4}"))
			w.run(0)
			w.want("Pods at once", strings.Join(w.podNames(), " "), "db-4 db-5 db-6")
			w.run(time.Minute)
			w.setImage(2)
			w.run(time.Second)
			w.want("one Pod is replaced at a time", w.images(), "db-4=a:1 db-5=a:1 db-6=a:1(deleting)")
			w.run(time.Minute)
			w.want("Pods", w.images(), "db-4=a:2 db-5=a:2 db-6=a:2")
			w.patch(statefulSets, "one/db", `{spec: {replicas: 1}}`)
			w.run(time.Second)
			w.expect(podsPath, "db-4 db-5(deleting) db-6(deleting)")
		},
		"scale in order": func(w *world) {
			w.pods = func(*corev1.Pod) controllers.PodBehavior { return controllers.PodBehavior{StopAfter: 5 * time.Second} }
			w.apply(statefulSets, db(""))
			w.run(time.Minute)
			w.patch(statefulSets, "one/db", `{spec: {replicas: 1}}`)
			w.run(time.Second)
			w.expect(podsPath, "db-0 db-1 db-2(deleting)")
			w.run(5 * time.Second)
			w.expect(podsPath, "db-0 db-1(deleting)")
			w.run(5 * time.Second)
			w.expect(podsPath, "db-0")
			w.patch(statefulSets, "one/db", `{spec: {replicas: 2, ordinals: {start: 1}}}`)
			w.run(time.Minute)
			w.expect(podsPath, "db-1 db-2")
		},
		"update, partition and rollback": func(w *world) {
			w.apply(statefulSets, db(", updateStrategy: {rollingUpdate: {partition: 1}}"))
			w.run(time.Minute)
			w.setImage(2)
			w.run(0)
			w.want("first replacement", w.images(), "db-0=a:1 db-1=a:1 db-2=a:2")
			w.want("status", w.setStatus(), "replicas=3 ready=2 available=2 current=2 updated=1 complete=false")
			w.run(time.Minute)
			w.want("partition", w.images(), "db-0=a:1 db-1=a:2 db-2=a:2")
			w.delete(podsPath, "one/db-0", "")
			w.delete(podsPath, "one/db-1", "")
			w.run(time.Minute)
			w.want("deleted Pods", w.images(), "db-0=a:1 db-1=a:2 db-2=a:2")
			w.patch(statefulSets, "one/db", `{spec: {updateStrategy: {rollingUpdate: {partition: 0}}}}`)
			w.run(time.Minute)
			w.want("all", w.images(), "db-0=a:2 db-1=a:2 db-2=a:2")
			w.want("status", w.setStatus(), allUpdated)
			before := into[appsv1.StatefulSet](w, statefulSets, "one/db").Status.UpdateRevision
			w.setImage(1)
			w.run(time.Minute)
			w.want("rollback", w.images(), "db-0=a:1 db-1=a:1 db-2=a:1")
			after := into[appsv1.StatefulSet](w, statefulSets, "one/db").Status.UpdateRevision
			w.want("revisions", fmt.Sprint(into[appsv1.ControllerRevision](w, revisions, "one/"+before).Revision, into[appsv1.ControllerRevision](w, revisions, "one/"+after).Revision), "2 3")
		},
		"update without parameters": func(w *world) {
			w.apply(statefulSets, db(", updateStrategy: {type: RollingUpdate}"))
			w.run(time.Minute)
			w.setImage(2)
			w.run(time.Minute)
			w.want("Pods", w.images(), "db-0=a:2 db-1=a:2 db-2=a:2")
			w.want("status", w.setStatus(), allUpdated)
		},
		"scale down with Pods that are not ready": func(w *world) {
			broken := false
			w.pods = func(pod *corev1.Pod) controllers.PodBehavior {
				if pod.Name == "db-0" {
					return controllers.PodBehavior{}
				}
				return controllers.PodBehavior{ExitAfter: time.Minute, NeverReady: broken}
			}
			w.apply(statefulSets, db(""))
			w.run(10 * time.Second)
			w.want("status", w.setStatus(), allUpdated)
			broken = true
			w.run(2 * time.Minute)
			w.patch(statefulSets, "one/db", `{spec: {replicas: 1}}`)
			w.run(10 * time.Second)
			w.expect(podsPath, "db-0 db-1 db-2") // db-1 is the first that is not ready, and db-2 has to wait for it
			w.delete(podsPath, "one/db-1", "")
			w.run(time.Minute)
			w.expect(podsPath, "db-0")
		},
		"OnDelete": func(w *world) {
			w.apply(statefulSets, db(", updateStrategy: {type: OnDelete}"))
			w.run(time.Minute)
			w.setImage(2)
			w.run(time.Minute)
			w.want("Pods", w.images(), "db-0=a:1 db-1=a:1 db-2=a:1")
			w.delete(podsPath, "one/db-1", "")
			w.run(time.Minute)
			w.want("Pods", w.images(), "db-0=a:1 db-1=a:2 db-2=a:1")
			w.want("status", w.setStatus(), "replicas=3 ready=3 available=3 current=2 updated=1 complete=false")
		},
		"minReadySeconds": func(w *world) {
			w.apply(statefulSets, db(", minReadySeconds: 10"))
			w.run(11 * time.Second)
			w.expect(podsPath, "db-0 db-1")
			w.run(2 * time.Second)
			w.want("status", w.setStatus(), "replicas=2 ready=2 available=1 current=2 updated=2 complete=true")
			w.run(time.Minute)
			w.want("status", w.setStatus(), allUpdated)
		},
		"Pods that fail": func(w *world) {
			w.pods = func(pod *corev1.Pod) controllers.PodBehavior {
				return controllers.PodBehavior{NeverReady: pod.Name == "db-1" && pod.Spec.Containers[0].Image == "a:2"}
			}
			w.apply(statefulSets, db(""))
			w.run(time.Minute)
			w.setImage(2)
			w.run(time.Minute)
			w.want("the update waits", w.images(), "db-0=a:1 db-1=a:2 db-2=a:2")
			w.setImage(3)
			w.run(time.Minute)
			w.want("the Pod that is not ready blocks a repaired update", w.images(), "db-0=a:1 db-1=a:2 db-2=a:2")
			w.delete(podsPath, "one/db-1", "")
			w.run(time.Minute)
			w.want("repaired by hand", w.images(), "db-0=a:3 db-1=a:3 db-2=a:3")
			w.send("PATCH", path(podsPath, "one/db-0")+"/status", "application/merge-patch+json", map[string]any{"status": map[string]any{"phase": "Failed"}})
			w.run(time.Minute)
			w.want("a failed Pod is replaced", w.setStatus(), allUpdated)
		},
		"history": func(w *world) {
			w.apply(statefulSets, db(", revisionHistoryLimit: 2"))
			for i := 2; i < 7; i++ {
				w.setImage(i)
				w.run(time.Minute)
			}
			_, list := w.send("GET", path(revisions, "one/"), "", nil)
			w.want("revisions", fmt.Sprint(len(list["items"].([]any))), "3")
		},
		"claims": func(w *world) {
			w.apply(statefulSets, db(withClaims))
			w.run(time.Minute)
			w.expect(claims, "data-db-0 data-db-1 data-db-2")
			claim, pod := into[corev1.PersistentVolumeClaim](w, claims, "one/data-db-1"), into[corev1.Pod](w, podsPath, "one/db-1")
			w.want("claim", fmt.Sprintln(claim.Status.Phase, claim.Labels, claim.OwnerReferences, pod.Spec.Volumes[0].PersistentVolumeClaim.ClaimName),
				"Bound map[app:db] [] data-db-1\n")
			w.patch(statefulSets, "one/db", `{spec: {replicas: 1}}`)
			w.run(time.Minute)
			w.expect(claims, "data-db-0 data-db-1 data-db-2")
			w.patch(statefulSets, "one/db", `{spec: {replicas: 3}}`)
			w.run(time.Minute)
			w.delete(statefulSets, "one/db", "")
			w.run(time.Minute)
			w.expect(podsPath, "")
			w.expect(claims, "data-db-0 data-db-1 data-db-2")
		},
		"claim that is being deleted": func(w *world) {
			w.apply(statefulSets, db(withClaims+", persistentVolumeClaimRetentionPolicy: {whenScaled: Delete}"))
			w.run(time.Minute)
			w.patch(claims, "one/data-db-2", "{metadata: {finalizers: [example.org/x]}}")
			w.patch(statefulSets, "one/db", `{spec: {replicas: 2}}`)
			w.run(time.Minute)
			w.patch(statefulSets, "one/db", `{spec: {replicas: 3}}`)
			w.run(time.Minute)
			w.expect(podsPath, "db-0 db-1")
			w.expect(claims, "data-db-0 data-db-1 data-db-2(deleting)")
			w.want("work", fmt.Sprint(w.manager.Pending()), "[]") // a later change of the set continues, as in the real controller
			w.patch(claims, "one/data-db-2", "{metadata: {finalizers: null}}")
			w.patch(statefulSets, "one/db", `{metadata: {annotations: {a: b}}}`)
			w.run(time.Minute)
			w.expect(podsPath, "db-0 db-1 db-2")
		},
		"claims of Pods that wait, and of other controllers": func(w *world) {
			w.pods = func(*corev1.Pod) controllers.PodBehavior { return controllers.PodBehavior{Unschedulable: true} }
			owner := w.apply(secrets, "{metadata: {name: owner}}")
			w.apply(claims, `{metadata: {name: data-db-1, ownerReferences: [{apiVersion: v1, kind: Secret, name: owner, uid: `+owner+`, controller: true}]}, spec: {
				accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}`)
			w.apply(statefulSets, db(withClaims+", podManagementPolicy: Parallel, persistentVolumeClaimRetentionPolicy: {whenDeleted: Delete}"))
			w.run(time.Minute)
			w.want("owners", w.owners(claims, "one/data-db-0")+" "+w.owners(claims, "one/data-db-1"), "db owner")
			w.delete(claims, "one/data-db-0", "")
			w.patch(podsPath, "one/db-0", `{metadata: {labels: {statefulset.kubernetes.io/pod-name: null}}}`)
			w.run(time.Minute)
			w.expect(claims, "data-db-0 data-db-1 data-db-2")
			w.want("label", into[corev1.Pod](w, podsPath, "one/db-0").Labels["statefulset.kubernetes.io/pod-name"], "db-0")
		},
		"claims that are deleted": func(w *world) {
			w.apply(statefulSets, db(withClaims+", persistentVolumeClaimRetentionPolicy: {whenScaled: Delete}"))
			w.run(time.Minute)
			w.want("owners", w.owners(claims, "one/data-db-2"), "")
			w.patch(statefulSets, "one/db", `{spec: {replicas: 2}}`)
			w.run(time.Minute)
			w.expect(claims, "data-db-0 data-db-1")
			w.patch(statefulSets, "one/db", `{spec: {replicas: 1, persistentVolumeClaimRetentionPolicy: {whenScaled: Retain, whenDeleted: Delete}}}`)
			w.run(time.Minute)
			w.expect(claims, "data-db-0 data-db-1")
			w.patch(statefulSets, "one/db", `{spec: {replicas: 3, persistentVolumeClaimRetentionPolicy: {whenScaled: Delete}}}`)
			w.run(time.Minute)
			w.patch(statefulSets, "one/db", `{spec: {replicas: 2}}`)
			w.run(time.Minute)
			w.expect(claims, "data-db-0 data-db-1")
			w.delete(statefulSets, "one/db", "")
			w.run(time.Minute)
			w.expect(claims, "")
		},
		"delete": func(w *world) {
			for _, policy := range []string{"Foreground", "Background"} {
				w.apply(statefulSets, db(""))
				w.run(time.Minute)
				w.delete(statefulSets, "one/db", policy)
				w.run(time.Minute)
				w.expect(statefulSets, "")
				w.expect(podsPath, "")
				w.expect(revisions, "")
			}
		},
		"orphans and adopts": func(w *world) {
			w.apply(statefulSets, db(""))
			w.run(time.Minute)
			w.delete(statefulSets, "one/db", "Orphan")
			w.run(time.Minute)
			w.expect(podsPath, "db-0 db-1 db-2")
			before := w.podList()
			w.apply(statefulSets, db(""))
			w.run(time.Minute)
			w.want("status", w.setStatus(), allUpdated)
			if after := w.podList(); after[0].UID != before[0].UID || len(after[0].OwnerReferences) != 1 {
				w.t.Errorf("the Pod was not adopted: %v", after[0].ObjectMeta)
			}
		},
		"names that collide": func(w *world) {
			w.apply(statefulSets, db(""))
			w.run(time.Minute)
			revision := into[appsv1.StatefulSet](w, statefulSets, "one/db").Status.UpdateRevision
			w.delete(statefulSets, "one/db", "")
			w.run(time.Minute)
			w.apply(revisions, `{metadata: {name: `+revision+`}, data: {a: b}, revision: 1}`)
			w.apply(statefulSets, db(""))
			w.run(time.Minute)
			status := into[appsv1.StatefulSet](w, statefulSets, "one/db").Status
			if *status.CollisionCount != 1 || status.UpdateRevision == revision {
				w.t.Errorf("collisionCount is %d, and the revision %s", *status.CollisionCount, status.UpdateRevision)
			}
			w.want("status", w.setStatus(), allUpdated)
		},
	})
}

// A user changes the set and deletes Pods at random times, and requests fail. In the end the Pods are those of the spec.
func TestRandomHistoriesOfStatefulSets(t *testing.T) {
	t.Parallel()
	for seed := range uint64(testlength.Count(8, 24)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(_ *testing.T, w *world) { randomHistory(w, rand.New(rand.NewPCG(seed, 1))) })
		})
	}
}

func randomHistory(w *world, random *rand.Rand) {
	ordered, policies := random.IntN(2) == 0, []string{"Retain", "Delete"}
	broken := true
	w.pods = func(*corev1.Pod) controllers.PodBehavior {
		return controllers.PodBehavior{NeverReady: broken && random.IntN(8) == 0, StopAfter: time.Duration(random.IntN(3)) * time.Second}
	}
	spec := withClaims + fmt.Sprintf(", persistentVolumeClaimRetentionPolicy: {whenScaled: %s, whenDeleted: %s}", policies[random.IntN(2)], policies[random.IntN(2)])
	if !ordered {
		spec += ", podManagementPolicy: Parallel"
	}
	w.fail = func(req *http.Request) int {
		if ordered {
			w.checkOrder(req)
		}
		if broken && random.IntN(20) == 0 {
			return http.StatusConflict
		}
		return 0
	}
	w.apply(services, `{metadata: {name: peers}, spec: {selector: {app: db}, clusterIP: None}}`)
	w.apply(statefulSets, db(spec))
	for range 30 {
		switch random.IntN(5) {
		case 0:
			w.patch(statefulSets, "one/db", fmt.Sprintf(`{spec: {replicas: %d}}`, random.IntN(6)))
		case 1:
			w.setImage(random.IntN(4))
		case 2:
			w.patch(statefulSets, "one/db", fmt.Sprintf(`{spec: {updateStrategy: {rollingUpdate: {partition: %d}}}}`, random.IntN(4)))
		case 3:
			if names := w.podNames(); len(names) > 0 {
				w.delete(podsPath, "one/"+names[random.IntN(len(names))], "")
			}
		case 4:
			w.patch(statefulSets, "one/db", fmt.Sprintf(`{spec: {ordinals: {start: %d}}}`, random.IntN(2)))
		}
		w.run(time.Duration(random.IntN(4000)) * time.Millisecond)
	}
	broken = false
	for _, pod := range w.podList() { // also those that are not ready, which block an ordered update
		w.delete(podsPath, "one/"+pod.Name, "")
	}
	w.patch(statefulSets, "one/db", `{spec: {updateStrategy: {rollingUpdate: {partition: 0}}}}`)
	w.run(time.Hour)
	set := into[appsv1.StatefulSet](w, statefulSets, "one/db")
	image, want := set.Spec.Template.Spec.Containers[0].Image, []string{}
	addresses := "IPv4"
	for i := range *set.Spec.Replicas {
		addresses += fmt.Sprintf(" db-%d=rs", firstOrdinal(set)+i)
		want = append(want, fmt.Sprintf("db-%d=%s", firstOrdinal(set)+i, image))
	}
	w.want("Pods", w.images(), strings.Join(want, " "))
	w.want("addresses", w.endpoints(), addresses)
	n := *set.Spec.Replicas
	w.want("status", w.setStatus(), fmt.Sprintf("replicas=%d ready=%d available=%d current=%d updated=%d complete=true", n, n, n, n, n))
	before := len(w.requests)
	w.run(24 * time.Hour)
	w.want("writes of an idle StatefulSet", fmt.Sprint(w.requests[before:]), "[]")
}

// checkOrder checks a request of the controller of an ordered StatefulSet: a Pod is created when all replicas before it are
// ready, and deleted when no Pod after it is being deleted.
func (w *world) checkOrder(req *http.Request) {
	w.t.Helper()
	if !strings.HasSuffix(req.UserAgent(), "/statefulset-controller") || !strings.Contains(req.URL.Path, "/pods") {
		return
	}
	pods := map[string]corev1.Pod{}
	for _, pod := range w.podList() {
		pods[pod.Name] = pod
		if req.Method == http.MethodDelete && pod.DeletionTimestamp != nil && pod.Name > req.URL.Path[strings.LastIndexByte(req.URL.Path, '/')+1:] {
			w.t.Errorf("%s is deleted while %s is being deleted", req.URL.Path, pod.Name)
		}
	}
	if req.Method != http.MethodPost {
		return
	}
	body, err := req.GetBody()
	if err != nil {
		w.t.Fatal(err)
	}
	var created corev1.Pod
	if err := json.NewDecoder(body).Decode(&created); err != nil {
		w.t.Fatal(err)
	}
	set := into[appsv1.StatefulSet](w, statefulSets, "one/db")
	for i := firstOrdinal(set); fmt.Sprint("db-", i) != created.Name; i++ {
		pod := pods[fmt.Sprint("db-", i)]
		if !slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		}) || pod.DeletionTimestamp != nil {
			w.t.Errorf("%s is created, and db-%d is not ready", created.Name, i)
			return
		}
	}
}

func firstOrdinal(set *appsv1.StatefulSet) int32 {
	if set.Spec.Ordinals == nil {
		return 0
	}
	return set.Spec.Ordinals.Start
}
