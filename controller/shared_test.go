package controller_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/apiserver"
	"github.com/evenkeel-go/evenkeel/internal/apitest"
	"github.com/evenkeel-go/evenkeel/internal/testlog"
	"github.com/evenkeel-go/evenkeel/internal/testrun"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/source"
)

// sharing is a server with two Secrets, and controllers of them on one Cluster.
type sharing struct {
	*testing.T
	server  *apitest.Server
	cluster *kube.Cluster

	mu      sync.Mutex
	handled map[string]int // guarded by mu; runs by controller
}

func share(t *testing.T, test func(s *sharing)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		server := apitest.New(apiserver.ConfigMaps(), apiserver.Secrets())
		for _, name := range []string{"a", "b"} {
			server.Apply("secrets", kube.Key{Namespace: "ns", Name: name}, "test",
				`{"apiVersion":"v1","kind":"Secret","metadata":{"namespace":"ns","name":"`+name+`"}}`)
		}
		cluster, err := kube.Connect(server.Config("test"))
		if err != nil {
			t.Fatal(err)
		}
		cluster.SetLogger((&testlog.Buffer{}).Logger(nil))
		test(&sharing{T: t, server: server, cluster: cluster, handled: map[string]int{}})
	})
}

// controller returns a controller of Secrets that own ConfigMaps.
func (s *sharing) controller(name string, change func(*controller.Config[*corev1.Secret])) *controller.Controller[*corev1.Secret] {
	s.Helper()
	config := controller.Config[*corev1.Secret]{
		Name: name, Cluster: s.cluster, ResyncInterval: -1,
		Sources: []controller.Source{source.Owned[*corev1.ConfigMap](s.cluster)},
		Handler: func(context.Context, *corev1.Secret) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.handled[name]++
			return nil
		},
	}
	if change != nil {
		change(&config)
	}
	c, err := controller.New(config)
	if err != nil {
		s.Fatal(err)
	}
	return c
}

func (s *sharing) run(name string, change func(*controller.Config[*corev1.Secret])) (stop func()) {
	s.Helper()
	return testrun.Start(s.T, s.controller(name, change).Run)
}

func (s *sharing) runsOf(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.handled[name]
}

func (s *sharing) expectWatches(when string, want int) {
	s.Helper()
	time.Sleep(10 * time.Second)
	synctest.Wait() // a watch that has just ended is started again
	if open := s.server.Watches(); open != want {
		s.Errorf("%s: %d watches, want %d", when, open, want)
	}
}

// Each controller handles each object, whenever it starts, and none loses its watch when another one ends.
func TestControllersShareInformers(t *testing.T) {
	t.Parallel()
	share(t, func(s *sharing) {
		stopFirst := s.run("first", nil)
		stopSecond := s.run("second", nil)
		s.expectWatches("two controllers", 2) // of Secrets and of ConfigMaps
		stopLate := s.run("late", nil)
		s.expectWatches("three controllers", 2)
		for _, name := range []string{"first", "second", "late"} {
			if n := s.runsOf(name); n != 2 {
				s.Errorf("%s ran %d times, want once for each object", name, n)
			}
		}
		stopFirst()
		s.expectWatches("after the first one has ended", 2)
		s.server.Edit("secrets", kube.Key{Namespace: "ns", Name: "a"}, "user", func(obj map[string]any) bool {
			obj["data"] = map[string]any{"k": "dg=="}
			return true
		})
		time.Sleep(time.Second)
		if first, second, late := s.runsOf("first"), s.runsOf("second"), s.runsOf("late"); first != 2 || second != 3 || late != 3 {
			s.Errorf("runs: %d of the ended controller, %d and %d of the others", first, second, late)
		}
		stopSecond()
		stopLate()
		s.expectWatches("after all have ended", 0)
		s.run("again", nil)
		s.expectWatches("a later one", 2)
		if n := s.runsOf("again"); n != 2 {
			s.Errorf("the later one ran %d times, want once for each object", n)
		}
	})
}

// What differs is not shared.
func TestInformersThatDifferAreNotShared(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(s *sharing, c *controller.Config[*corev1.Secret]){
		"selection": func(s *sharing, c *controller.Config[*corev1.Secret]) {
			c.Retriever = informer.RetrieveSelected[*corev1.Secret](s.cluster, kube.Selection{LabelSelector: "!old"})
		},
		"namespaces": func(s *sharing, c *controller.Config[*corev1.Secret]) {
			c.Retriever = informer.RetrieveSelected[*corev1.Secret](s.cluster, kube.Selection{Namespaces: []string{"ns"}})
		},
		"optional": func(_ *sharing, c *controller.Config[*corev1.Secret]) { c.Optional = true },
		"Informer of its own": func(s *sharing, c *controller.Config[*corev1.Secret]) {
			own, err := informer.New(informer.Config[*corev1.Secret]{Retriever: informer.Retrieve[*corev1.Secret](s.cluster)})
			if err != nil {
				s.Fatal(err)
			}
			c.Informer = own
		},
		"Cluster": func(s *sharing, c *controller.Config[*corev1.Secret]) {
			other, err := kube.Connect(s.server.Config("other"))
			if err != nil {
				s.Fatal(err)
			}
			c.Cluster = other
			c.Sources = nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			share(t, func(s *sharing) {
				s.run("first", nil)
				s.run("second", func(c *controller.Config[*corev1.Secret]) { change(s, c) })
				s.expectWatches("two controllers", 3) // two of Secrets, one of ConfigMaps
				if first, second := s.runsOf("first"), s.runsOf("second"); first != 2 || second != 2 {
					s.Errorf("%d and %d runs, want 2 each", first, second)
				}
			})
		})
	}
}

// One user must not change what the others see.
func TestSetRetrieverOfSharedInformerIsRejected(t *testing.T) {
	t.Parallel()
	share(t, func(s *sharing) {
		narrow := informer.RetrieveSelected[*corev1.Secret](s.cluster, kube.Selection{Namespaces: []string{"other"}})
		first, second := s.controller("first", nil), s.controller("second", nil)
		err := first.Informer().SetRetriever(s.Context(), narrow)
		if err == nil || !strings.Contains(err.Error(), "2 controllers and sources share the informer") {
			s.Error(err)
		}
		testrun.Start(s.T, second.Run)
		s.expectWatches("one of them", 2)
		if n := s.runsOf("second"); n != 2 {
			s.Errorf("it ran %d times, want once for each object", n)
		}
	})
	share(t, func(s *sharing) {
		alone := s.controller("alone", nil)
		if err := alone.Informer().SetRetriever(s.Context(), informer.RetrieveSelected[*corev1.Secret](s.cluster,
			kube.Selection{Namespaces: []string{"other"}})); err != nil {
			s.Fatal(err)
		}
		testrun.Start(s.T, alone.Run)
		s.run("later", nil)
		s.expectWatches("one with another selection", 3)
		if alone, later := s.runsOf("alone"), s.runsOf("later"); alone != 0 || later != 2 {
			s.Errorf("%d and %d runs, want 0 and 2", alone, later)
		}
	})
}

// Two users may add indexes of one name if the second one is created after the first index.
func TestIndexesOfInformersAreNotShared(t *testing.T) {
	t.Parallel()
	share(t, func(s *sharing) {
		index := informer.Index[*corev1.Secret]{Name: "name", Values: func(o *corev1.Secret) []string { return []string{o.Name} }}
		for _, name := range []string{"first", "second"} {
			c := s.controller(name, nil)
			if err := c.Informer().AddIndex(index); err != nil {
				s.Errorf("%s: %v", name, err)
			}
			testrun.Start(s.T, c.Run)
		}
		s.expectWatches("two controllers with indexes", 3)
		if got := []int{s.runsOf("first"), s.runsOf("second")}; !slices.Equal(got, []int{2, 2}) {
			s.Errorf("runs: %v", got)
		}
	})
}

// A controller that is created after two others have shared an informer with an index has an informer of its own.
func TestIndexOfSharedInformerEndsSharing(t *testing.T) {
	t.Parallel()
	share(t, func(s *sharing) {
		index := informer.Index[*corev1.Secret]{Name: "name", Values: func(o *corev1.Secret) []string { return []string{o.Name} }}
		first, second := s.controller("first", nil), s.controller("second", nil)
		if err := first.Informer().AddIndex(index); err != nil {
			s.Fatal(err)
		}
		third := s.controller("third", nil)
		if err := third.Informer().AddIndex(index); err != nil {
			s.Error(err)
		}
		for _, c := range []*controller.Controller[*corev1.Secret]{first, second, third} {
			testrun.Start(s.T, c.Run)
		}
		s.expectWatches("two that share, and one of its own", 3)
	})
}
