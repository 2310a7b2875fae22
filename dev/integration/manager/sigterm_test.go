package manager

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/event"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/clustertest"
	"github.com/evenkeel-go/evenkeel/internal/testlength"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/leader"
	"github.com/evenkeel-go/evenkeel/manager"
)

// operatorVariable is the environment variable that makes the test binary an operator. Its value is an operatorConfig in
// JSON.
const operatorVariable = "EVENKEEL_MANAGER_OPERATOR"

type operatorConfig struct {
	Kubeconfig, Namespace string
	// Slow makes one of the first handlers run until its context is cancelled.
	Slow bool
}

const (
	operatorObjects = 1000
	operatorWorkers = 8
	// changedPerRound is the number of objects that a user changes before each start of the operator.
	changedPerRound = 50
)

// operatorMain runs a manager with a controller, an Event recorder and a lease. The handler copies the field wanted of a
// ConfigMap to first and then, in a second write, to second, and records an Event.
func operatorMain(encoded string) int {
	var config operatorConfig
	err := json.Unmarshal([]byte(encoded), &config)
	var cluster *kube.Cluster
	if err == nil {
		cluster, err = config.run()
	}
	if err == nil {
		err = findLeaks(cluster)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	return manager.ExitStatus(err)
}

// findLeaks returns an error that lists the goroutines that the operator left. net/http ends the stream of a cancelled
// request in the background, so that its connection may be in use at the first call of CloseIdleConnections.
func findLeaks(cluster *kube.Cluster) error {
	var err error
	for range 10 {
		cluster.HTTPClient().CloseIdleConnections()
		// Find waits for about a second.
		err = goleak.Find(goleak.IgnoreTopFunction("os/signal.signal_recv"), goleak.IgnoreAnyFunction("os/signal.loop"))
		if err == nil {
			return nil
		}
	}
	return err
}

// run returns the cluster, whose idle connections are open.
func (o operatorConfig) run() (*kube.Cluster, error) {
	loaded, err := kube.LoadConfig(o.Kubeconfig)
	if err != nil {
		return nil, err
	}
	cluster, err := kube.Connect(loaded)
	if err != nil {
		return nil, err
	}
	core, err := corev1client.NewForConfigAndClient(cluster.RESTConfig(), cluster.HTTPClient())
	if err != nil {
		return nil, err
	}
	events, err := event.New(event.Config{Cluster: cluster, Controller: "shop-operator", QueueSize: operatorObjects, FlushTimeout: 10 * time.Second})
	if err != nil {
		return nil, err
	}
	var began atomic.Int32
	ctrl, err := controller.New(controller.Config[*corev1.ConfigMap]{
		Name: "shops", Workers: operatorWorkers,
		Retriever: informer.RetrieveSelected[*corev1.ConfigMap](cluster, kube.Selection{
			Namespaces: []string{o.Namespace}, LabelSelector: "shop",
		}),
		Runs: controller.RunsConfig{DrainTimeout: 300 * time.Millisecond},
		Handler: func(ctx context.Context, m *corev1.ConfigMap) error {
			fmt.Fprintln(os.Stderr, "began", m.Name)
			defer fmt.Fprintln(os.Stderr, "ended", m.Name)
			if began.Add(1) == operatorWorkers/2 && o.Slow {
				<-ctx.Done()
				fmt.Fprintln(os.Stderr, "cancelled", m.Name)
				return context.Cause(ctx)
			}
			if m.Data["second"] == m.Data["wanted"] {
				return nil
			}
			fmt.Fprintln(os.Stderr, "writes", m.Name)
			err := o.handle(ctx, core, m)
			if err != nil && ctx.Err() != nil {
				fmt.Fprintln(os.Stderr, "cut", m.Name)
			}
			if err == nil {
				events.Normal(m, "Handled", "Copy", "wanted %s", m.Data["wanted"])
			}
			return err
		},
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, err
	}
	m, err := manager.New(manager.Config{
		LeaderElection: &leader.Config{Cluster: cluster, Namespace: o.Namespace, Name: "operator"},
		Runnables: []manager.Runnable{
			{Name: "events", Runner: events, Group: manager.Always},
			{Runner: ctrl},
		},
	})
	if err != nil {
		return nil, err
	}
	return cluster, m.Run(context.Background())
}

// handle makes the two writes of a handler.
func (o operatorConfig) handle(ctx context.Context, core corev1client.ConfigMapsGetter, m *corev1.ConfigMap) error {
	if err := o.write(ctx, core, m, "first"); err != nil {
		return err
	}
	// Most handlers are here when the signal arrives.
	select {
	case <-time.After(4 * time.Millisecond):
	case <-ctx.Done():
		return ctx.Err()
	}
	return o.write(ctx, core, m, "second")
}

// write copies the field wanted of a ConfigMap to another field.
func (o operatorConfig) write(ctx context.Context, core corev1client.ConfigMapsGetter, m *corev1.ConfigMap, field string) error {
	body := fmt.Sprintf(`{"data":{%q:%q}}`, field, m.Data["wanted"])
	_, err := core.ConfigMaps(m.Namespace).Patch(ctx, m.Name, types.MergePatchType, []byte(body), metav1.PatchOptions{})
	return err
}

// An operator gets SIGTERM while 8 handlers run and most of 1,000 keys are queued. No further handler starts, running
// ones end, Events are sent, and the lease is released last. The next process continues: no object is half done between
// them, and at the end every change was handled.
func TestSIGTERMDrainsHandlersAndKeepsChanges(t *testing.T) {
	t.Parallel()
	c := clustertest.Client(t, clustertest.Connect(t, local.RESTConfig()))
	namespace := clustertest.Namespace(t, c)
	create(t, c, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "operator"}})
	for i := range operatorObjects {
		m := configMap(namespace, shopName(i))
		m.Labels = map[string]string{"shop": ""}
		m.Data = map[string]string{"first": "0", "second": "0", "wanted": "0"}
		create(t, c, m)
	}
	config := local.RESTConfig()
	config.QPS = -1
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	test := &shutdownTest{T: t, clients: clients, namespace: namespace, cut: map[string]bool{}}

	rounds := testlength.Count(5, 100)
	handled, queued, cancelled := 0, 0, 0
	var longest time.Duration
	for round := 1; round <= rounds; round++ {
		for _, i := range rand.Perm(operatorObjects)[:changedPerRound] {
			test.patch(shopName(i), fmt.Sprintf(`{"data":{"wanted":"%d"}}`, round))
		}
		// Enough handlers have begun that the others are running when the signal arrives.
		end := test.terminate(round, operatorWorkers+rand.IntN(operatorObjects/2))
		handled, queued = handled+end.began, queued+operatorObjects-end.began
		longest = max(longest, end.took)
		cancelled += end.cancelled
		if want := slowHandlers(round); end.cancelled != want {
			t.Errorf("round %d: %d handlers were cancelled, want %d", round, end.cancelled, want)
		}
		if end.began >= operatorObjects {
			t.Errorf("round %d: no key was queued at the end", round)
		}
		test.check(round, false)
	}
	// The last process runs until every change is handled and has its Event: FlushTimeout may be too short for hundreds.
	last := test.start(rounds+1, false)
	clustertest.Eventually(t, test.undone)
	last.signal()
	last.wait()
	test.text = last.text
	test.check(rounds+1, true)
	t.Logf("%d rounds: %d handlers began, %d keys were queued at the ends, %d handlers were cancelled after the drain time; %d of them during a write; at most %s from SIGTERM to the end of the process; %d Events",
		rounds, handled, queued, cancelled+test.cuts, test.cuts, longest.Round(time.Millisecond), test.total)
}

// shutdownTest is the test's view of the objects.
type shutdownTest struct {
	*testing.T
	clients   kubernetes.Interface
	namespace string

	total int // of Events
	// cut has the objects whose handler was cancelled during its last writes. On a busy machine, handlers can need more than
	// the drain time. A write may have succeeded then, although the handler has no response and records no Event.
	cut  map[string]bool
	cuts int      // in all rounds
	text []string // log of the last process
}

func (s *shutdownTest) patch(name, body string) {
	s.Helper()
	_, err := s.clients.CoreV1().ConfigMaps(s.namespace).Patch(s.Context(), name, types.MergePatchType, []byte(body), metav1.PatchOptions{})
	if err != nil {
		s.Fatal(err)
	}
}

func shopName(i int) string { return fmt.Sprintf("shop-%04d", i) }

// slowHandlers returns how many handlers of a round run until they are cancelled.
func slowHandlers(round int) int { return round % 2 }

// maps lists the objects.
func (s *shutdownTest) maps() []corev1.ConfigMap {
	s.Helper()
	list, err := s.clients.CoreV1().ConfigMaps(s.namespace).List(s.Context(), metav1.ListOptions{LabelSelector: "shop"})
	if err != nil {
		s.Fatal(err)
	}
	if len(list.Items) != operatorObjects {
		s.Fatalf("%d objects, want %d", len(list.Items), operatorObjects)
	}
	return list.Items
}

// events lists the Events. noted has the name of each object with each note.
func (s *shutdownTest) events() (noted map[string]bool, list []eventsv1.Event) {
	s.Helper()
	all, err := s.clients.EventsV1().Events(s.namespace).List(s.Context(), metav1.ListOptions{})
	if err != nil {
		s.Fatal(err)
	}
	noted = map[string]bool{}
	for _, e := range all.Items {
		noted[e.Regarding.Name+" "+e.Note] = true
	}
	return noted, all.Items
}

// undone returns an object that is not handled or has no Event of its last change, or "".
func (s *shutdownTest) undone() string {
	noted, _ := s.events()
	for _, m := range s.maps() {
		if m.Data["second"] != m.Data["wanted"] || s.unnoted(&m, noted) {
			return fmt.Sprintf("%s: %v", m.Name, m.Data)
		}
	}
	return ""
}

// unnoted reports whether the last handled change of an object has no Event.
func (s *shutdownTest) unnoted(m *corev1.ConfigMap, noted map[string]bool) bool {
	return !s.cut[m.Name] && m.Data["second"] != "0" && !noted[m.Name+" wanted "+m.Data["second"]]
}

// check checks the state between two processes: no object is half done, each handled change has an Event, and the lease
// is free and was released after the last other write.
func (s *shutdownTest) check(round int, all bool) {
	s.Helper()
	noted, events := s.events()
	s.total = len(events)
	latest := int64(0)
	for _, e := range events {
		latest = max(latest, versionOf(s.T, &e))
	}
	for _, m := range s.maps() {
		latest = max(latest, versionOf(s.T, &m))
		switch {
		case m.Data["first"] != m.Data["second"] && !s.cut[m.Name]:
			s.Errorf("round %d: %s is half done: %v", round, m.Name, m.Data)
		case s.unnoted(&m, noted):
			s.Errorf("round %d: %s has no Event of its last change: %v; the log of the process:\n%s", round, m.Name, m.Data, strings.Join(s.text, "\n"))
		case all && m.Data["second"] != m.Data["wanted"]:
			s.Errorf("%s was not handled: %v", m.Name, m.Data)
		}
	}
	lease, err := s.clients.CoordinationV1().Leases(s.namespace).Get(s.Context(), "operator", metav1.GetOptions{})
	if err != nil {
		s.Fatal(err)
	}
	if holder := lease.Spec.HolderIdentity; holder != nil && *holder != "" {
		s.Errorf("round %d: the lease was not released: its holder is %s", round, *holder)
	}
	if versionOf(s.T, lease) < latest {
		s.Errorf("round %d: an object or an Event was written after the lease was released", round)
	}
}

func versionOf(t *testing.T, obj metav1.Object) int64 {
	t.Helper()
	var version int64
	if _, err := fmt.Sscan(obj.GetResourceVersion(), &version); err != nil {
		t.Fatal(err)
	}
	return version
}

// operator is a process.
type operator struct {
	*testing.T
	round   int
	command *exec.Cmd
	lines   *bufio.Scanner
	text    []string // of the log
}

func (s *shutdownTest) start(round int, slow bool) *operator {
	s.Helper()
	encoded, err := json.Marshal(operatorConfig{Kubeconfig: local.Kubeconfig(), Namespace: s.namespace, Slow: slow})
	if err != nil {
		s.Fatal(err)
	}
	command := exec.Command(os.Args[0], "-test.run=^$") //nolint:gosec // this binary
	command.Env = append(os.Environ(), operatorVariable+"="+string(encoded))
	stderr, err := command.StderrPipe()
	if err != nil {
		s.Fatal(err)
	}
	if err := command.Start(); err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = command.Process.Kill() })
	return &operator{T: s.T, round: round, command: command, lines: bufio.NewScanner(stderr)}
}

func (o *operator) signal() {
	o.Helper()
	if err := o.command.Process.Signal(syscall.SIGTERM); err != nil {
		o.Errorf("send SIGTERM: %v", err)
	}
}

// wait waits for the end of the process, after all of its lines were read, and checks its status and its last line.
func (o *operator) wait() {
	o.Helper()
	for o.lines.Scan() {
		o.text = append(o.text, o.lines.Text())
	}
	if err := o.command.Wait(); err != nil {
		o.Errorf("round %d: the operator has ended: %v\n%s", o.round, err, strings.Join(o.text, "\n"))
	}
	if n := len(o.text); n == 0 || !strings.Contains(o.text[n-1], "manager stopped") || !strings.Contains(o.text[n-1], "signal SIGTERM") {
		o.Errorf("round %d: the last line does not give the reason of the end:\n%s", o.round, strings.Join(o.text, "\n"))
	}
}

// ending is the end of a process.
type ending struct {
	began, cancelled int // numbers of handlers
	took             time.Duration
}

// terminate runs the operator, and sends SIGTERM when signalAt handlers have begun.
func (s *shutdownTest) terminate(round, signalAt int) ending {
	s.Helper()
	o := s.start(round, slowHandlers(round) > 0)
	running := map[string]bool{}
	var end ending
	var signalled time.Time
	afterwards, stopping := 0, false
	for o.lines.Scan() {
		line := o.lines.Text()
		verb, name, _ := strings.Cut(line, " ")
		switch verb {
		case "began":
			end.began++
			running[name] = true
			if end.began == signalAt {
				signalled = time.Now()
				o.signal()
			}
		case "cut":
			s.cut[name] = true
			s.cuts++
		case "writes":
			delete(s.cut, name)
			if stopping {
				afterwards++
			}
		case "cancelled":
			end.cancelled++
		case "ended":
			delete(running, name)
		default:
			stopping = stopping || strings.Contains(line, "manager stopping")
			o.text = append(o.text, line)
		}
	}
	end.took = time.Since(signalled)
	o.wait()
	s.text = o.text
	if len(running) > 0 {
		s.Errorf("round %d: handlers have not returned: %v", round, running)
	}
	// The controller stops in 0.02 to 2 ms after the log line. Many handlers that find nothing to do can run in that time.
	// One that writes needs more than 4 ms.
	if afterwards > 2*operatorWorkers {
		s.Errorf("round %d: %d handlers wrote after the stop, want at most two for each of %d workers", round, afterwards, operatorWorkers)
	}
	return end
}
