package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/evenkeel-go/evenkeel/dev/bench/internal/machine"
)

func loadAvg() string { return machine.LoadAvg() }

// runPhase does what a phase consists of. It returns how long the phase took by its own definition, and what should
// have been gone or shown by its end and was not.
func (s *session) runPhase(ctx context.Context, phase string) (seconds float64, left string, err error) {
	begin := time.Now()
	var end time.Time
	switch phase {
	case phaseStart:
		end, err = s.await(ctx, s.allReady)
	case phaseRest:
		end, err = s.rest(ctx)
	case phaseChurn:
		if err = s.change(ctx, s.o.Churn); err == nil {
			end, err = s.await(ctx, s.allShown)
		}
	case phaseOutage:
		end, err = s.outage(ctx)
	case phaseRestart:
		end, err = s.await(ctx, s.allHandled)
		if _, _, last := s.records.progress(); err == nil {
			end = last // a WebApp is handled when its record is ensured
		}
	case phaseDeletion:
		return s.deletion(ctx)
	}
	if errors.Is(err, errTimeout) {
		left, err = err.Error(), nil
	}
	if err == nil && phase != phaseRest {
		err = s.awaitQuiet(ctx)
	}
	return end.Sub(begin).Seconds(), left, err
}

func (s *session) allReady() (bool, string) {
	c := s.view.counts()
	return c.ready == s.size, fmt.Sprintf("%d of %d WebApps are ready", c.ready, s.size)
}

func (s *session) allShown() (bool, string) {
	c := s.view.counts()
	return c.unshown == 0 && c.ready == s.size, fmt.Sprintf("%d of %d WebApps are ready, %d changes are not shown",
		c.ready, s.size, c.unshown)
}

func (s *session) allHandled() (bool, string) {
	hosts, calls, _ := s.records.progress()
	return hosts == s.size, fmt.Sprintf("%d of %d WebApps are handled, by %d runs", hosts, s.size, calls)
}

// rest leaves everything alone for a while.
func (s *session) rest(ctx context.Context) (time.Time, error) {
	until := time.Now().Add(s.o.Rest)
	return s.await(ctx, func() (bool, string) {
		left := time.Until(until)
		return left <= 0, fmt.Sprintf("resting for another %.0f s", left.Seconds())
	})
}

// change changes specs at the rate of the options for a while.
func (s *session) change(ctx context.Context, duration time.Duration) error {
	interval := time.Duration(float64(time.Second) / s.o.Rate)
	tick := time.NewTicker(interval)
	defer tick.Stop()
	var sending sync.WaitGroup
	defer sending.Wait()
	begin, reported := time.Now(), time.Now()
	for n := range int(duration.Seconds() * s.o.Rate) {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		s.revision++
		revision := s.revision
		sending.Go(func() { s.changeOne(ctx, revision) })
		if time.Since(reported) > 2*time.Second {
			reported = time.Now()
			s.say("%d changes in %.0f s, %s", n+1, time.Since(begin).Seconds(), func() string {
				_, state := s.allShown()
				return state
			}())
		}
	}
	return nil
}

// changeOne changes one WebApp: by turns its image, which the Deployment shows, and its config, which the ConfigMap
// shows and which makes the Deployment roll out.
func (s *session) changeOne(ctx context.Context, revision int) {
	i := revision % s.size
	c := child{deploymentsPath, keyOf(i)}
	patch := fmt.Sprintf(`{"spec":{"image":"shop:%d"}}`, revision)
	if (revision/s.size+revision)%2 == 1 {
		c = child{configMapsPath, keyOf(i) + "-config"}
		patch = fmt.Sprintf(`{"spec":{"config":{%q:"%d"}}}`, revisionKey, revision)
	}
	s.view.await(c, revision, time.Now())
	path := "/apis/webapp.example.com/v1/namespaces/" + namespaceOf(i) + "/webapps/" + nameOf(i) + "?fieldManager=" +
		fieldManager
	if _, err := s.api.send(ctx, http.MethodPatch, path, "application/merge-patch+json", []byte(patch)); err != nil {
		s.view.forget(c, revision) // while the API server is down
	}
}

// outage kills the API server in the middle of changes, starts it again, and changes specs again.
func (s *session) outage(ctx context.Context) (time.Time, error) {
	if err := s.change(ctx, s.o.Outage); err != nil {
		return time.Now(), err
	}
	s.say("killing the API server")
	if err := errors.Join(s.proxy.close(), s.cluster.Kill()); err != nil {
		return time.Now(), err
	}
	if err := s.cluster.Restart(ctx); err != nil {
		return time.Now(), err
	}
	if err := s.proxy.open(ctx); err != nil {
		return time.Now(), err
	}
	s.say("the API server is ready again")
	s.view.takeDelays() // from here on, those after the outage count
	if err := s.change(ctx, s.o.Outage); err != nil {
		return time.Now(), err
	}
	return s.await(ctx, s.allShown)
}

// deletion deletes all WebApps. It ends when the last of them is gone; then the garbage collector gets some time for
// the children.
func (s *session) deletion(ctx context.Context) (seconds float64, left string, err error) {
	begin := time.Now()
	for i := range min(10, s.size) {
		if _, err := s.api.send(ctx, http.MethodDelete, "/apis/webapp.example.com/v1/namespaces/"+namespaceOf(i)+
			"/webapps", "", nil); err != nil {
			return 0, "", err
		}
	}
	end, err := s.await(ctx, func() (bool, string) {
		c := s.view.counts()
		return c.apps == 0, fmt.Sprintf("%d of %d WebApps are left", c.apps, s.size)
	})
	if err == nil {
		checked := time.Time{}
		children := 0
		_, err = s.await(ctx, func() (bool, string) {
			if time.Since(checked) > time.Second {
				children, err = s.countChildren(ctx)
				checked = time.Now()
			}
			return err == nil && children == 0 && !checked.IsZero(), fmt.Sprintf("%d children are left", children)
		})
	}
	if errors.Is(err, errTimeout) {
		left, err = err.Error(), nil
	}
	if n := s.records.count(); n > 0 && err == nil {
		left += fmt.Sprintf(", %d records are left", n)
	}
	if err == nil {
		err = s.awaitQuiet(ctx)
	}
	return end.Sub(begin).Seconds(), left, err
}

func (s *session) countChildren(ctx context.Context) (int, error) {
	sum := 0
	for _, path := range []string{deploymentsPath, configMapsPath, "/api/v1/services"} {
		n, err := s.api.count(ctx, path)
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}
