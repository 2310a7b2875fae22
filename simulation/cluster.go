package simulation

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/internal/apiserver"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/simulation/internal/controllers"
	"github.com/evenkeel-go/evenkeel/simulation/internal/webhooks"
)

// Config configures a Cluster. The zero value is a cluster without custom resources. Each cluster has the Service
// default/kubernetes, the system PriorityClasses, the roles that users bind, the ConfigMap
// kube-system/extension-apiserver-authentication, and unless it is WithoutControllers, in each namespace the
// ServiceAccount default and the ConfigMap kube-root-ca.crt.
type Config struct {
	// Manifests are YAML or JSON files, or folders of such files, with the objects that exist when the test begins:
	// CustomResourceDefinitions first, then all other objects, in the order of their files. Namespaced objects without
	// a namespace are created in namespace default. Paths are relative to the folder of the test. Tests with the same
	// contents share the work of creating these objects. Default: none.
	Manifests []string
	// YAML has further objects, as Manifests: for example the contents of an embedded file. Default: none.
	YAML string
	// Types register the Go types of custom resources: usually the AddToScheme function of an API package. The kinds of
	// k8s.io/api are always known. Default: none.
	Types []func(*runtime.Scheme) error
	// Namespaces are created when the test begins, besides default, kube-system, kube-public and kube-node-lease.
	// Default: none.
	Namespaces []string
	// Pods returns what happens to a Pod. It is called when the Pod is scheduled, and when its containers start; it
	// must not make requests. Default: every Pod has the zero PodBehavior.
	Pods func(pod *corev1.Pod) PodBehavior
	// WithoutControllers leaves out the models of Kubernetes' controllers: of the garbage collector, namespaces and
	// their first objects, Deployments, ReplicaSets, StatefulSets, PersistentVolumeClaims, Jobs, EndpointSlices,
	// Endpoints, the scheduler and the kubelets. Then the test acts for them, as with envtest. Default false.
	WithoutControllers bool
	// IdleAfter is the time without activity after which Settle returns. Default 3 s.
	IdleAfter time.Duration
}

// PodBehavior is what happens to a Pod. The zero value is a Pod that works: it is ready after 1 s, and if its
// restartPolicy is not Always, its containers end with exit code 0 after 1 s.
type PodBehavior struct {
	// Unschedulable leaves the Pod without a node.
	Unschedulable bool
	// ImagePullFails leaves the containers waiting with the reason ImagePullBackOff. The images are pulled again after
	// 10 s, 20 s, and so on, up to 5 minutes.
	ImagePullFails bool
	// ReadyAfter is the time from the start of the containers until they are ready. Default 1 s; negative: at once.
	ReadyAfter time.Duration
	// NeverReady is true if the containers run, and their readiness probes fail.
	NeverReady bool
	// ExitAfter is the time from the start of the containers until they end with ExitCode. The Pod's restartPolicy
	// decides whether they start again, with the backoff of the kubelet. Default: 1 s if the restartPolicy is OnFailure
	// or Never, otherwise never; negative: never.
	ExitAfter time.Duration
	ExitCode  int32
	// StopAfter is the time that the containers of a deleted Pod take to end, and is at most its grace period. Default:
	// at once.
	StopAfter time.Duration
}

// Cluster is a Kubernetes cluster in memory. Its methods, and the functions that take it, fail the test with
// [testing.T.Fatal] if they cannot do their work. This ends the calling goroutine, which should therefore be the
// test's.
type Cluster struct {
	tb      testing.TB
	config  Config
	virtual bool          // in a bubble of testing/synctest
	waiting chan struct{} // has a value while a goroutine is in wait
	server  *apiserver.Server
	host    string // the URL, by which the library distinguishes API servers
	kube    *kube.Cluster
	client  *client.Client
	log     *requestLog
	reviews *webhooks.Admission
	// models are the controllers of Kubernetes, or nil. They end after all programs.
	models     *controllers.Manager
	stopModels func()
	runs       runCounter
	stopped    atomic.Bool // a program was never idle

	mu       sync.Mutex
	programs []*program // guarded by mu
}

// Test runs f as a test with a cluster, in a bubble of testing/synctest: time is virtual, and jumps to the next timer
// when all goroutines wait. It begins at midnight UTC on 1 January 2000. Everything that f started with Run and Go has
// ended when Test returns. If the virtual time stops for 30 s of real time, because of a deadlock with a mutex or an
// endless loop, Test prints the latest runs of the controllers and the stacks of the goroutines. t may be parallel.
func Test(t *testing.T, config Config, f func(t *testing.T, c *Cluster)) {
	t.Helper()
	dog := newWatchdog(stallLimit, printStall)
	defer dog.end()
	synctest.Test(t, func(t *testing.T) { f(t, newCluster(t, config, dog, nil)) })
}

// New returns a cluster that exists until the end of the test: for a test with two clusters, which have different URLs,
// uids and resource versions, and for one that is not in a bubble. Outside of a bubble time is real: Settle takes at
// least Config.IdleAfter.
func New(tb testing.TB, config Config) *Cluster {
	tb.Helper()
	return newCluster(tb, config, nil, nil)
}

// newCluster returns a cluster. g, if it is not nil, gives turns to the requests of the models.
func newCluster(tb testing.TB, config Config, dog *watchdog, g *gate) *Cluster {
	tb.Helper()
	c := &Cluster{tb: tb, config: config, virtual: inBubble(), waiting: make(chan struct{}, 1)}
	dog.enter(c.allRuns)
	if c.config.IdleAfter <= 0 {
		c.config.IdleAfter = 3 * time.Second
	}
	world, err := worlds.get(config, c.virtual)
	if err != nil {
		tb.Fatalf("simulation: %v", err)
	}
	c.server = world.server.Fork()
	c.host = "http://simulation.invalid"
	if number := worlds.number(tb); number > 0 {
		c.server.Renumber(number)
		c.host = fmt.Sprintf("http://simulation-%d.invalid", number+1)
	}
	c.reviews = webhooks.New(c.server)
	c.server.SetAdmission(c.reviews)
	worlds.compiler.Rebind(c.server, webhooks.Converter)
	c.log = newRequestLog(c.server, dog)
	if g != nil {
		c.log.throttle = exploreThrottle
	}
	c.kube = c.Connect(testUserAgent)
	c.client, err = client.New(client.Config{Cluster: c.kube, FieldOwner: testUserAgent, FieldValidation: "Strict"})
	if err != nil {
		tb.Fatalf("simulation: %v", err)
	}
	if !config.WithoutControllers {
		models := controllers.Config{Server: c.server, Transport: c.log}
		if g != nil {
			models.Transport = &modelTransport{g, c.log}
		}
		if config.Pods != nil {
			models.Pods = func(pod *corev1.Pod) controllers.PodBehavior {
				return controllers.PodBehavior(config.Pods(pod))
			}
		}
		c.models = controllers.New(models)
		c.stopModels = c.start(&program{name: "kube-controller-manager"}, c.models.Run)
	}
	tb.Cleanup(c.end)
	return c
}

// RESTConfig returns the config of a client of the cluster: of this library, of client-go, or of controller-runtime.
// userAgent identifies its requests, and is the name of its field manager.
func (c *Cluster) RESTConfig(userAgent string) *rest.Config {
	return &rest.Config{Host: c.host, Transport: c.log, UserAgent: userAgent, QPS: -1}
}

// Connect returns a connection to the cluster with the types of Config.Types. userAgent is that of RESTConfig.
func (c *Cluster) Connect(userAgent string) *kube.Cluster {
	c.tb.Helper()
	cluster, err := kube.Connect(c.RESTConfig(userAgent), c.config.Types...)
	if err != nil {
		c.tb.Fatalf("simulation: %v", err)
	}
	return cluster
}

// testUserAgent is the user agent of the test's own requests.
const testUserAgent = "test"

// Client returns the client of the test's own requests, with the user agent "test". It acts as a user: it is not one of
// the programs that are tested.
func (c *Cluster) Client() *client.Client { return c.client }

// HandleWebhooks makes h handle the calls of all admission and conversion webhooks of the cluster, in place of an
// earlier handler. The host and the path of a request are those of the webhook's clientConfig, the host of a service is
// name.namespace.svc:443. h is called in the goroutine of the reviewed request, without a connection; it may make
// requests. Its context ends at the webhook's timeout, that of a conversion after 30 s; a handler that ignores it
// delays the request. A panic is a failed call. Certificates are ignored. Without a handler, or with nil, calls fail:
// an admission webhook's failurePolicy decides, and a request that needs a conversion fails. The objects of Config are
// created before the test begins, without webhooks: they need the storage version of their CustomResourceDefinition.
func (c *Cluster) HandleWebhooks(h http.Handler) { c.reviews.SetHandler(h) }

// end stops all programs and, after a failure, logs what happened.
func (c *Cluster) end() {
	programs, report := c.running(), ""
	if c.tb.Failed() {
		report = c.report(programs) // before the end of the programs, which makes them not ready and cancels requests
	}
	c.stop(programs...)
	if c.models != nil {
		c.stopModels()
	}
	if c.tb.Failed() {
		c.tb.Log(cmp.Or(report, c.report(programs)))
	}
}

// inBubble reports whether the caller is in a bubble of testing/synctest.
func inBubble() (in bool) {
	defer func() { in = recover() == nil }()
	synctest.Wait()
	return true
}

// ctx is the context of the test's own requests. It is not the test's context, which has ended in cleanups.
func (c *Cluster) ctx() context.Context { return context.WithoutCancel(c.tb.Context()) }
