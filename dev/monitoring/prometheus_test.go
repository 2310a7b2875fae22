package monitoring_test

import (
	"context"
	"errors"
	"io"
	"iter"
	"log/slog"
	"math"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/model/timestamp"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/util/teststorage"
)

// A recording is a storage of Prometheus with the scrapes of a run, and its query engine.
type recording struct {
	*teststorage.TestStorage
	engine   *promql.Engine
	from, to time.Time // the first and the last scrape
}

// store writes scrapes into a storage. Series that are missing in a scrape become stale, as in Prometheus.
func store(t *testing.T, scrapes []scrape) recording {
	t.Helper()
	samples := teststorage.New(t)
	latest := map[string]map[string]labels.Labels{} // the series of the latest scrape, by instance
	for _, s := range scrapes {
		to := samples.Appender(t.Context())
		add := func(name labels.Labels, value float64) {
			if _, err := to.Append(0, name, timestamp.FromTime(s.at), value); err != nil {
				t.Fatalf("store %s: %v", name, err)
			}
		}
		current := map[string]labels.Labels{}
		for name, value := range parse(t, s) {
			current[name.String()] = name
			add(name, value)
		}
		for id, name := range latest[s.instance] {
			if _, ok := current[id]; !ok {
				add(name, math.Float64frombits(value.StaleNaN))
			}
		}
		latest[s.instance] = current
		if err := to.Commit(); err != nil {
			t.Fatal(err)
		}
	}
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 50_000_000, Timeout: time.Minute, Logger: slog.New(slog.DiscardHandler)})
	t.Cleanup(func() { _ = engine.Close() })
	return recording{samples, engine, scrapes[0].at, scrapes[len(scrapes)-1].at}
}

// parse yields the series of a scrape and their values.
func parse(t *testing.T, s scrape) iter.Seq2[labels.Labels, float64] {
	t.Helper()
	return func(yield func(labels.Labels, float64) bool) {
		parser := textparse.NewPromParser(s.text, labels.NewSymbolTable(), false)
		for {
			entry, err := parser.Next()
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				t.Fatalf("parse the metrics of %s: %v", s.instance, err)
			}
			if entry != textparse.EntrySeries {
				continue
			}
			var name labels.Labels
			parser.Labels(&name)
			_, _, value := parser.Series()
			name = labels.NewBuilder(name).Set("job", "website-operator").Set("instance", s.instance).Labels()
			if !yield(name, value) {
				return
			}
		}
	}
}

// query evaluates a query from the first to the last scrape.
func (r recording) query(ctx context.Context, text string, step time.Duration) (promql.Matrix, error) {
	q, err := r.engine.NewRangeQuery(ctx, r, nil, text, r.from, r.to, step)
	if err != nil {
		return nil, err
	}
	defer q.Close()
	result := q.Exec(ctx)
	if result.Err != nil {
		return nil, result.Err
	}
	return result.Matrix()
}
