package webhook

import (
	"cmp"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/evenkeel-go/evenkeel/kube"
)

// address is how the API server reaches a server.
type address struct {
	service kube.Key // empty for a server outside of the cluster
	name    string   // in the certificate
	host    string   // with the port of the URL
	port    int64
	path    string // without a slash at its end
}

// parseAddress reads a URL. Service references have hosts such as NAME.NAMESPACE.svc, as in their certificates:
// k8s.io/apiserver/pkg/util/webhook/client.go.
func parseAddress(text string) (address, error) {
	parsed, err := url.Parse(text)
	if err != nil || parsed.Scheme != "https" || parsed.Hostname() == "" || parsed.User != nil ||
		strings.ContainsAny(text, "?#") || strings.ContainsAny(parsed.Hostname(), "%/") {
		return address{}, fmt.Errorf("URL is %q: want https://HOST:PORT/PATH, or for a Service "+
			"https://NAME.NAMESPACE.svc:PORT/PATH, each with an optional port and path", text)
	}
	port, err := strconv.ParseUint(cmp.Or(parsed.Port(), "443"), 10, 16)
	if err != nil || port == 0 {
		return address{}, fmt.Errorf("URL is %q: its port is not between 1 and 65535", text)
	}
	a := address{
		name: parsed.Hostname(), host: parsed.Host, port: int64(port), //nolint:gosec // it has 16 bits
		path: strings.TrimSuffix(parsed.EscapedPath(), "/"),
	}
	labels := strings.Split(strings.ToLower(a.name), ".")
	if len(labels) != 3 || labels[2] != "svc" {
		return a, nil
	}
	a.service, a.name = kube.Key{Namespace: labels[1], Name: labels[0]}, strings.Join(labels, ".")
	problems := append(validation.IsDNS1123Label(labels[0]), validation.IsDNS1123Label(labels[1])...)
	if a.path != parsed.Path && a.path+"/" != parsed.Path {
		problems = append(problems, "the path of a Service has no escapes")
	}
	if len(problems) > 0 {
		return address{}, fmt.Errorf("URL is %q, that of a Service: %s", text, strings.Join(problems, "; "))
	}
	return a, nil
}
