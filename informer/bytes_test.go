package informer_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/apitest"
	"github.com/evenkeel-go/evenkeel/kube"
)

// apiServer responds to requests for ConfigMaps, over connections in memory. The test determines each byte.
type apiServer struct {
	listener *apitest.Listener
	answer   func(a *answer) // called for each list and watch

	mu        sync.Mutex
	accepts   []string // Accept headers of lists and watches
	discovery int      // discovery requests
}

// answer is a request and its response.
type answer struct {
	http.ResponseWriter
	*http.Request
	number  int  // number of the request, from the first one
	watches bool // otherwise it lists
	streams bool // a request for a streamed list
}

// send sends text immediately.
func (a *answer) send(text string) {
	_, _ = a.ResponseWriter.Write([]byte(text)) // the client may have closed the connection
	a.ResponseWriter.(http.Flusher).Flush()
}

// event sends an event of a ConfigMap.
func (a *answer) event(kind, name, version string) {
	annotations := ""
	if name == "" {
		annotations = `,"annotations":{"k8s.io/initial-events-end":"true"}`
	}
	a.send(fmt.Sprintf(`{"type":%q,"object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"namespace":"ns","name":%q,"uid":"uid-%s","resourceVersion":%q%s}}}`+"\n",
		kind, name, name, version, annotations))
}

// breakOff closes the connection in the middle of the response.
func (a *answer) breakOff() { panic(http.ErrAbortHandler) }

// stand keeps the watch open until the client ends it.
func (a *answer) stand() { <-a.Request.Context().Done() }

// refuse responds with an error.
func (a *answer) refuse(err *apierrors.StatusError) {
	a.ResponseWriter.Header().Set("Content-Type", "application/json")
	a.ResponseWriter.WriteHeader(int(err.ErrStatus.Code))
	status := err.ErrStatus
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	text, _ := json.Marshal(status)
	a.send(string(text))
}

func serve(t *testing.T, answerWith func(a *answer)) *apiServer {
	t.Helper()
	s := &apiServer{listener: apitest.NewListener(), answer: answerWith}
	mux := http.NewServeMux()
	mux.HandleFunc("/api/v1", func(w http.ResponseWriter, _ *http.Request) {
		s.mu.Lock()
		s.discovery++
		s.mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"v1","resources":[{"name":"configmaps","namespaced":true,"kind":"ConfigMap","verbs":["list","watch"]}]}`))
	})
	mux.HandleFunc("/api/v1/configmaps", func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.accepts = append(s.accepts, r.Header.Get("Accept"))
		a := &answer{w, r, len(s.accepts), r.FormValue("watch") == "true", r.FormValue("sendInitialEvents") == "true"}
		s.mu.Unlock()
		s.answer(a)
	})
	server := &http.Server{Handler: mux, ErrorLog: log.New(io.Discard, "", 0)}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(s.listener) }) // waited for below
	t.Cleanup(func() {
		_ = server.Close()
		serving.Wait()
	})
	return s
}

// connect returns a Cluster that uses the server.
func (s *apiServer) connect(t *testing.T, config rest.Config) *kube.Cluster {
	t.Helper()
	config.Host, config.Dial = "http://127.0.0.1", s.listener.Dial
	cluster, err := kube.Connect(&config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.HTTPClient().CloseIdleConnections)
	return cluster
}

// live is an informer that runs beside its test.
type live[T kube.Object] struct {
	*testing.T
	*informer.Informer[T]
	seen *recorder
	logs *logBuffer
}

func runLive[T kube.Object](t *testing.T, r informer.Retriever[T]) live[T] {
	t.Helper()
	l := live[T]{T: t, seen: &recorder{}, logs: &logBuffer{}}
	inf, err := informer.New(informer.Config[T]{Name: "live", Retriever: r, Logger: l.logs.logger()})
	if err != nil {
		t.Fatal(err)
	}
	l.Informer = inf
	inf.Subscribe(l.seen.notify)
	t.Cleanup(inf.Join(t.Context()))
	return l
}

// until waits until check returns "".
func (l live[T]) until(check func() string) {
	l.Helper()
	last := check()
	for range 20_000 {
		if last == "" {
			return
		}
		time.Sleep(time.Millisecond)
		last = check()
	}
	l.Fatalf("after 20 s: %s\n%s", last, l.logs)
}

// tells waits until the informer has announced changes, in this order.
func (l live[T]) tells(want ...string) {
	l.Helper()
	l.until(func() string {
		l.seen.mu.Lock()
		defer l.seen.mu.Unlock()
		if len(l.seen.changes) < len(want) {
			return fmt.Sprintf("told %q, want %q", l.seen.changes, want)
		}
		return ""
	})
	if diff := cmp.Diff(want, l.seen.take()); diff != "" {
		l.Errorf("changes (-want +got):\n%s", diff)
	}
}

func TestStreamedListContinuesAfterBrokenConnection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, func(a *answer) {
			switch {
			case !a.streams:
				a.refuse(apierrors.NewServiceUnavailable("no lists"))
			case a.number == 1:
				a.event("ADDED", "dead", "5")
				a.event("ADDED", "alive", "6")
				a.send(`{"type":"ADDED","object":{"kind":"Conf`)
				a.breakOff()
			default:
				a.event("ADDED", "alive", "6")
				a.event("ADDED", "new", "7")
				a.event("BOOKMARK", "", "8")
				a.event("DELETED", "new", "9")
				a.stand()
			}
		})
		l := runLive(t, informer.Retrieve[configMap](s.connect(t, rest.Config{})))
		l.tells("listed dead", "listed alive", "listed new", "deleted dead", "deleted new")
		if h := l.Health(); h.ResourceVersion != "9" || h.Received < 700 || h.Received > 1500 || h.Objects != 1 || !h.Synced {
			t.Errorf("health: %+v", h)
		}
	})
}

func TestListContinuesAfterBrokenConnection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		item := func(name string) string {
			return fmt.Sprintf(`{"metadata":{"namespace":"ns","name":%q,"uid":"uid-%s","resourceVersion":"5"}}`, name, name)
		}
		lists := 0
		s := serve(t, func(a *answer) {
			switch {
			case a.streams:
				a.refuse(apierrors.NewBadRequest("no streamed lists"))
			case a.watches:
				a.event("MODIFIED", "alive", "9")
				a.stand()
			default:
				lists++
				a.ResponseWriter.Header().Set("Content-Type", "application/json")
				a.send(`{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"8"},"items":[`)
				if lists == 1 {
					a.send(item("dead") + "," + item("alive") + `,{"metadata":{"na`)
					a.breakOff()
				}
				a.send(item("alive") + "]}")
			}
		})
		l := runLive(t, informer.Retrieve[configMap](s.connect(t, rest.Config{})))
		l.tells("listed dead", "listed alive", "deleted dead", "updated alive")
		if !strings.Contains(l.logs.String(), "list ConfigMap: read a list at byte") {
			t.Errorf("the log does not say what broke:\n%s", l.logs)
		}
		if err := l.Ready(); err != nil {
			t.Error(err)
		}
	})
}

func TestWatchRecoversFromExpiredHistoryAndInvalidBytes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, func(a *answer) {
			switch a.number {
			case 1:
				a.event("ADDED", "a", "5")
				a.event("BOOKMARK", "", "8")
				a.event("MODIFIED", "a", "9")
			case 2: // as a response; in a stream it would be an event
				a.refuse(apierrors.NewResourceExpired("too old resource version"))
			case 3:
				a.event("ADDED", "a", "9")
				a.event("BOOKMARK", "", "20")
				a.send("garbage\n")
				a.stand()
			default:
				a.event("ADDED", "b", "30")
				a.event("BOOKMARK", "", "30")
				a.stand()
			}
		})
		l := runLive(t, informer.Retrieve[configMap](s.connect(t, rest.Config{})))
		l.tells("listed a", "updated a", "added b", "deleted a")
		logs := l.logs.String()
		if n := strings.Count(logs, "level=WARN"); n != 1 || !strings.Contains(logs, "watch ConfigMap: read the stream: ") {
			t.Errorf("%d warnings, want one, of the garbage:\n%s", n, logs)
		}
	})
}

func TestStatusErrorsOfResponsesAreReported(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		resource := corev1.Resource("configmaps")
		s := serve(t, func(a *answer) {
			switch {
			case a.number <= 2: // the streamed list and the list
				a.refuse(apierrors.NewForbidden(resource, "", errors.New("jane may not")))
			case a.number <= 4:
				a.refuse(apierrors.NewNotFound(resource, ""))
			default:
				a.event("ADDED", "a", "30")
				a.event("BOOKMARK", "", "30")
				a.stand()
			}
		})
		l := runLive(t, informer.Retrieve[configMap](s.connect(t, rest.Config{})))
		l.until(func() string {
			if err := l.Ready(); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "list ConfigMap: configmaps is forbidden: jane may not") {
				return fmt.Sprintf("Ready: %v; want the refusal", err)
			}
			return ""
		})
		l.until(func() string {
			if err := l.Ready(); !apierrors.IsNotFound(err) {
				return fmt.Sprintf("Ready: %v; want that it is not found", err)
			}
			return ""
		})
		l.tells("listed a")
		l.until(func() string {
			if err := l.Ready(); err != nil {
				return err.Error()
			}
			return ""
		})
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.discovery < 2 {
			t.Error("after a request was answered with 404, it was not asked again which kinds there are")
		}
	})
}

func TestRequestsAcceptFormatOfType(t *testing.T) {
	t.Parallel()
	kind := kube.Selection{Kind: configMapKind()}
	const proto, plain = "application/vnd.kubernetes.protobuf", "application/json"
	const metadata = ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
	const metadataList = ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
	for name, test := range map[string]struct {
		run         func(t *testing.T, s *apiServer)
		watch, list string
	}{
		"typed": {
			func(t *testing.T, s *apiServer) {
				t.Helper()
				runLive(t, informer.Retrieve[configMap](s.connect(t, rest.Config{})))
			},
			proto + "," + plain, proto + "," + plain,
		},
		"unstructured": {
			func(t *testing.T, s *apiServer) {
				t.Helper()
				runLive(t, informer.RetrieveSelected[*unstructured.Unstructured](s.connect(t, rest.Config{}), kind))
			},
			plain, plain,
		},
		"metadata": {
			func(t *testing.T, s *apiServer) {
				t.Helper()
				runLive(t, informer.RetrieveMetadata[configMap](s.connect(t, rest.Config{}), kube.Selection{}))
			},
			proto + metadata + "," + plain + metadata, proto + metadataList + "," + plain + metadataList,
		},
		"configured": {
			func(t *testing.T, s *apiServer) {
				t.Helper()
				config := rest.Config{ContentConfig: rest.ContentConfig{AcceptContentTypes: plain}}
				runLive(t, informer.RetrieveSelected[*metav1.PartialObjectMetadata](s.connect(t, config), kind))
			},
			plain + metadata, plain + metadataList,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				listed := make(chan struct{}, 100)
				s := serve(t, func(a *answer) {
					if !a.watches {
						listed <- struct{}{}
					}
					a.refuse(apierrors.NewBadRequest("just looking"))
				})
				test.run(t, s)
				<-listed
				s.mu.Lock()
				defer s.mu.Unlock()
				if diff := cmp.Diff([]string{test.watch, test.list}, slices.Clone(s.accepts[:2])); diff != "" {
					t.Errorf("Accept of the streamed list and the list (-want +got):\n%s", diff)
				}
			})
		})
	}
}
