package prometheus_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	dto "github.com/prometheus/client_model/go"
)

// histogramSums returns the sums of the series of a histogram.
func histogramSums(all []*dto.MetricFamily, name string) map[string]float64 {
	sums := map[string]float64{}
	for _, family := range all {
		for _, m := range family.GetMetric() {
			if family.GetName() == name {
				sums[labelsOf(m)] = m.GetHistogram().GetSampleSum()
			}
		}
	}
	return sums
}

// Requests have the size that client-go measures: without watches, bodies of unknown size, and errors without a body.
func TestSizesOfRequests(t *testing.T) {
	t.Parallel()
	_, registry, transport := newRecorderOfCluster(t, func(req *http.Request) (*http.Response, error) {
		resp := &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader("12345"))}
		switch {
		case strings.HasSuffix(req.URL.Path, "refused"):
			return nil, errors.New("connection refused")
		case strings.HasSuffix(req.URL.Path, "empty"):
			resp.StatusCode, resp.Body = http.StatusConflict, http.NoBody
		case strings.HasSuffix(req.URL.Path, "switch"):
			resp.StatusCode = http.StatusSwitchingProtocols
		}
		return resp, nil
	})
	for _, r := range []struct {
		method, path string
		body         io.Reader
	}{
		{http.MethodPost, "", strings.NewReader("123")},
		{http.MethodPost, "", io.MultiReader(strings.NewReader("1234567"))}, // of unknown size
		{http.MethodPatch, "refused", strings.NewReader("12")},
		{http.MethodPut, "empty", strings.NewReader("1")},
		{http.MethodGet, "?watch=true&x=y", nil},
		{http.MethodHead, "switch", nil},
	} {
		req, err := http.NewRequestWithContext(t.Context(), r.method, "https://api/"+r.path, r.body)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := transport.RoundTrip(req)
		if err != nil {
			continue
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			t.Error(err)
		}
		_, _ = resp.Body.Close(), resp.Body.Close() // counted once
	}
	for name, want := range map[string]map[string]float64{
		"rest_client_request_size_bytes": {
			"{host=api,verb=POST}": 3, "{host=api,verb=PATCH}": 2, "{host=api,verb=PUT}": 1, "{host=api,verb=GET}": 0, "{host=api,verb=HEAD}": 0,
		},
		"rest_client_response_size_bytes": {"{host=api,verb=POST}": 10, "{host=api,verb=PUT}": 0},
	} {
		if diff := cmp.Diff(want, histogramSums(families(t, registry), name)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if counts := histogramCounts(t, registry, "rest_client_request_size_bytes"); counts["{host=api,verb=POST}"] != 1 {
		t.Errorf("requests: %v, want one of POST", counts)
	}
	if counts := histogramCounts(t, registry, "rest_client_response_size_bytes"); counts["{host=api,verb=POST}"] != 2 || counts["{host=api,verb=PUT}"] != 0 {
		t.Errorf("responses: %v, want two of POST, and none of PUT", counts)
	}
}

func TestNameLookupsAreMeasured(t *testing.T) {
	t.Parallel()
	_, registry, transport := newRecorderOfCluster(t, func(req *http.Request) (*http.Response, error) {
		lookUp(req, "api.example.com")
		return nil, errors.New("connection refused")
	})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://api.example.com:6443/", nil)
	if err != nil {
		t.Fatal(err)
	}
	if resp, err := transport.RoundTrip(req); err == nil {
		_ = resp.Body.Close()
	}
	want := map[string]uint64{"{host=api.example.com}": 1}
	if diff := cmp.Diff(want, histogramCounts(t, registry, "rest_client_dns_resolution_duration_seconds")); diff != "" {
		t.Error(diff)
	}
}

func TestHooksHaveCompatibleNames(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		recorder, registry := newCompatibleRecorder(t)
		begin := recorder.ObserveHook("/hosts.example.com", false)
		convert := recorder.ObserveHook("/hosts", true)
		expectValues(t, registry, map[string]float64{
			"controller_runtime_webhook_requests_total{code=200,webhook=/hosts.example.com}": 0,
			"controller_runtime_webhook_requests_total{code=500,webhook=/hosts.example.com}": 0,
			"controller_runtime_webhook_panics_total{}":                                      0,
			"controller_runtime_conversion_webhook_panics_total{}":                           0,
		})
		ended, other := begin(), begin()
		time.Sleep(time.Second)
		ended(http.StatusInternalServerError, true)
		convert()(http.StatusOK, true)
		convert()(http.StatusOK, true)
		expectValues(t, registry, map[string]float64{
			"controller_runtime_webhook_requests_in_flight{webhook=/hosts.example.com}":      1,
			"controller_runtime_webhook_requests_in_flight{webhook=/hosts}":                  0,
			"controller_runtime_webhook_requests_total{code=500,webhook=/hosts.example.com}": 1,
			"controller_runtime_webhook_requests_total{code=200,webhook=/hosts}":             2,
			"controller_runtime_webhook_panics_total{}":                                      1,
			"controller_runtime_conversion_webhook_panics_total{}":                           2,
		})
		other(http.StatusBadRequest, false)
		expectValues(t, registry, map[string]float64{
			"controller_runtime_webhook_requests_in_flight{webhook=/hosts.example.com}":      0,
			"controller_runtime_webhook_requests_total{code=400,webhook=/hosts.example.com}": 1,
		})
		sums := histogramSums(families(t, registry), "controller_runtime_webhook_latency_seconds")
		if diff := cmp.Diff(map[string]float64{"{webhook=/hosts.example.com}": 2, "{webhook=/hosts}": 0}, sums); diff != "" {
			t.Error(diff)
		}
	})
}

// The reads of all servers are summed, and the metrics exist without a server.
func TestCertificateReads(t *testing.T) {
	t.Parallel()
	recorder, registry := newCompatibleRecorder(t)
	for i := range 2 {
		expectValues(t, registry, map[string]float64{
			"certwatcher_read_certificate_total{}": float64(3 * i), "certwatcher_read_certificate_errors_total{}": float64(i),
		})
		defer recorder.ObserveCertificate("webhooks", func() time.Time { return time.Time{} },
			func() (all, failed uint64) { return 3, 1 })()
	}
	expectValues(t, registry, map[string]float64{
		"certwatcher_read_certificate_total{}": 6, "certwatcher_read_certificate_errors_total{}": 2,
	})
}
