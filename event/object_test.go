package event_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/event"
	"github.com/evenkeel-go/evenkeel/internal/testrun"
	"github.com/evenkeel-go/evenkeel/kube"
)

func podObject(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: "u1", ResourceVersion: "7"}}
}

func TestNormalAndWarning(t *testing.T) {
	t.Parallel()
	job := &unstructured.Unstructured{}
	job.SetAPIVersion("batch/v1")
	job.SetKind("Job")
	job.SetNamespace("shop")
	job.SetName("report")
	metadata := &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: "shop.example.com/v1", Kind: "Website"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "w"},
	}
	type fields = eventsv1.Event
	for name, test := range map[string]struct {
		say  func(*event.Recorder)
		want fields
	}{
		"normal": {
			func(r *event.Recorder) { r.Normal(podObject("web"), "Started", "Start", "after %d s", 3) },
			fields{Regarding: pod("web"), Type: "Normal", Reason: "Started", Action: "Start", Note: "after 3 s"},
		},
		"a warning": {
			func(r *event.Recorder) { r.Warning(podObject("web"), "Stalled", "Retry", "100% full") },
			fields{Regarding: pod("web"), Type: "Warning", Reason: "Stalled", Action: "Retry", Note: "100% full"},
		},
		"an unstructured object": {
			func(r *event.Recorder) { r.Normal(job, "Done", "", "") },
			fields{Regarding: corev1.ObjectReference{APIVersion: "batch/v1", Kind: "Job", Namespace: "shop", Name: "report"}, Type: "Normal", Reason: "Done", Action: "Done"},
		},
		"metadata": {
			func(r *event.Recorder) { r.Normal(metadata, "Done", "", "") },
			fields{Regarding: corev1.ObjectReference{APIVersion: "shop.example.com/v1", Kind: "Website", Namespace: "shop", Name: "w"}, Type: "Normal", Reason: "Done", Action: "Done"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				server, recorder, _ := newRunning(t, event.Config{})
				test.say(recorder)
				synctest.Wait()
				e := server.one(t)
				got := fields{
					ObjectMeta: metav1.ObjectMeta{Annotations: e.Annotations}, Regarding: e.Regarding, Related: e.Related,
					Type: e.Type, Reason: e.Reason, Action: e.Action, Note: e.Note,
				}
				if diff := cmp.Diff(test.want, got); diff != "" {
					t.Errorf("the Event (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestInvalidObjectIsDroppedAndLogged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, recorder, logged := newRunning(t, event.Config{})
		unknown := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "w"}}
		for range 3 {
			recorder.Normal(unknown, "A", "B", "")
			recorder.Warning(nil, "A", "B", "")
			recorder.Warning((*corev1.Pod)(nil), "A", "B", "")
		}
		synctest.Wait()
		if got := recorder.Stats(); got != (event.Stats{Dropped: 9}) {
			t.Errorf("stats are %+v, want 9 dropped", got)
		}
		if got := logged.with("invalid object in event"); got != 1 {
			t.Errorf("logged %d times, want once", got)
		}
		time.Sleep(time.Minute)
		recorder.Normal(unknown, "A", "B", "")
		synctest.Wait()
		if got := logged.with("invalid object in event"); got != 2 {
			t.Errorf("logged %d times, want twice", got)
		}
	})
}

func TestNilRecorder(t *testing.T) {
	t.Parallel()
	var recorder *event.Recorder
	recorder.Normal(podObject("web"), "A", "B", "%d", 1)
	recorder.Warning(podObject("web"), "A", "B", "")
	recorder.Event(pod("web"), "Normal", "A", "B", "")
	if got := recorder.Stats(); got != (event.Stats{}) {
		t.Errorf("stats are %+v", got)
	}
	if err := recorder.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "is nil") {
		t.Errorf("run: %v", err)
	}
}

// 10,000 calls while the API server does not respond.
func TestCallsNeverBlock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := newAPIServer()
		server.answer = hang
		recorder, _ := server.recorder(t, event.Config{})
		stop := testrun.Start(t, recorder.Run)
		began := time.Now()
		for i := range 10_000 {
			recorder.Warning(podObject(fmt.Sprint("web", i%100)), "Stalled", "Retry", "%d", i)
		}
		if waited := time.Since(began); waited > 0 {
			t.Errorf("the calls took %s", waited)
		}
		stop()
		if ended := time.Since(began); ended > 2*time.Second {
			t.Errorf("the end took %s", ended)
		}
	})
}

// The last events are sent when Run ends.
func TestRunFlushesEventsOfObjects(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := newAPIServer()
		recorder, _ := server.recorder(t, event.Config{})
		stop := testrun.Start(t, recorder.Run)
		for range 5 {
			recorder.Normal(podObject("web"), "A", "B", "")
		}
		synctest.Wait()
		recorder.Normal(podObject("web"), "A", "B", "") // a repeat, to be sent in 5 min
		recorder.Warning(podObject("web"), "Ended", "End", "for reasons")
		stop()
		got := server.list()
		slices.Sort(got)
		if diff := cmp.Diff([]string{"web A x6", "web Ended x1"}, got); diff != "" {
			t.Errorf("the Events (-want +got):\n%s", diff)
		}
	})
}

func ExampleRecorder_Warning() {
	server := newAPIServer()
	cluster, err := kube.Connect(&rest.Config{Host: "https://example.com", Transport: server}) // in a program: kube.LoadConfig
	if err != nil {
		fmt.Println(err)
		return
	}
	events, err := event.New(event.Config{Cluster: cluster, Controller: "shop-operator"})
	if err != nil {
		fmt.Println(err)
		return
	}
	web := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	for range 3 {
		events.Warning(web, "Stalled", "Retry", "%s is away", "the database")
	}
	// Run sends one Event with a count of 3.
}
