package conformance

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestSmokeSubresources compares requests for subresources that random operations do not address with those to a simulated
// cluster.
func TestSmokeSubresources(t *testing.T) {
	r := newRunner(t, simulated(t, nil))
	g := newGenerator(kinds(), 1, firstDirected)
	request, certificate := signing(t)
	resized := *kindOf("pods")
	resized.minimal = `"spec":{"containers":[{"name":"c","image":"i","resources":{"requests":{"cpu":"1","memory":"1Gi","ephemeral-storage":"1Gi"},"limits":{"cpu":"2"}}},` +
		`{"name":"d","image":"i"}],"initContainers":[{"name":"i","image":"i","resources":{"requests":{"cpu":"1"}}}]}`
	pod := func(spec string) *kind {
		k := *kindOf("pods")
		k.minimal = `"spec":{` + spec + `}`
		return &k
	}
	const container = `"containers":[{"name":"c","image":"i","resources":{"requests":{"cpu":"1","memory":"1Gi"},"limits":{"cpu":"9","memory":"2Gi"}}}],` +
		`"initContainers":[{"name":"s","image":"i","restartPolicy":"Always","resources":{"requests":{"cpu":"500m"}}},{"name":"i","image":"i","resources":{"requests":{"cpu":"1"}}}]`
	accounts := &kind{resource: "serviceaccounts", name: "ServiceAccount", apiVersion: "v1"}
	quotas := &kind{resource: "resourcequotas", name: "ResourceQuota", apiVersion: "v1"}
	signings := &kind{
		resource: "certificatesigningrequests", name: "CertificateSigningRequest", apiVersion: "certificates.k8s.io/v1", clusterScoped: true,
		minimal: `"spec":{"request":"` + request + `","signerName":"example.com/signer","usages":["client auth"]},"status":{"certificate":"` + certificate + `"}`,
	}
	for name, test := range map[string]struct {
		kind  *kind
		steps func(d *director) []operation
	}{
		"ephemeral containers": {kindOf("pods"), ephemeralSteps},
		"resize":               {&resized, resizeSteps},
		"resize of a Pod without resources": {kindOf("pods"), func(d *director) []operation {
			return append(d.existing(), d.in("resize", http.MethodPatch, `{"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"1"}}}]}}`))
		}},
		"resize of a Windows Pod":                    {pod(`"os":{"name":"windows"},` + container), refusedResizes},
		"resize of a Pod with requests of its own":   {pod(`"resources":{"requests":{"cpu":"4"}},` + container), wholePodSteps},
		"resize of a Pod with limits of its own":     {pod(`"resources":{"limits":{"cpu":"4","memory":"4Gi"}},` + container), wholePodSteps},
		"resize of a Pod with a lower limit":         {pod(`"resources":{"limits":{"cpu":"1"}},` + container), refusedResizes},
		"resize of a Pod with invalid resources":     {pod(`"resources":{"requests":{"ephemeral-storage":"1"}},` + container), (*director).existing},
		"resize of a Windows Pod with resources":     {pod(`"os":{"name":"windows"},"resources":{"requests":{"cpu":"4"}},` + container), (*director).existing},
		"resize of a Pod with claims of its own":     {pod(`"resources":{"claims":[{"name":"a"}]},` + container), (*director).existing},
		"resize of a Pod with huge pages":            {pod(`"resources":{"requests":{"cpu":"4"}},"containers":[{"name":"c","image":"i","resources":{"limits":{"cpu":"1","hugepages-2Mi":"4Mi"}}}]`), wholePodSteps},
		"resize of a Pod with too few of huge pages": {pod(`"resources":{"limits":{"cpu":"4","hugepages-2Mi":"2Mi"}},"containers":[{"name":"c","image":"i","resources":{"limits":{"cpu":"1","hugepages-2Mi":"4Mi"}}}]`), (*director).existing},
		"resize of a static Pod": {pod(`"nodeName":"n1",` + container), func(d *director) []operation {
			static := d.operation(http.MethodPost, "", d.object(`,"annotations":{"kubernetes.io/config.mirror":"x"}`))
			return append([]operation{static, d.patch(mergeMedia, `{"metadata":{"annotations":{"kubernetes.io/config.mirror":"y"}}}`)}, refusedResizes(d)[1:]...)
		}},
		"annotation of a static Pod": {kindOf("pods"), func(d *director) []operation {
			return append(d.existing(), d.patch(mergeMedia, `{"metadata":{"annotations":{"kubernetes.io/config.mirror":"x"}}}`))
		}},
		"approval": {signings, func(d *director) []operation { return approvalSteps(d, certificate) }},
		"token":    {accounts, tokenSteps},
		"status in an update of a kind without a generation": {quotas, func(d *director) []operation {
			const status = `"status":{"hard":{"pods":"1"}}`
			return append(d.existing(), d.patch(mergeMedia, `{"metadata":{"labels":{"app":"web"}},`+status+`}`), d.operation(http.MethodPut, d.name, `{"metadata":{"name":"`+d.name+`"},`+status+`}`))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			d, sides := newDirector(g, test.kind), r.begin(t)
			for i, o := range test.steps(d) {
				if difference := r.runIn(t, sides, []operation{o}); difference != "" {
					t.Errorf("step %d: %s", i, difference)
				}
			}
		})
	}
}

const mergeMedia = "application/merge-patch+json"

// in makes an operation on a subresource of the object. A patch is a strategic merge patch.
func (d *director) in(subresource, method, body string) operation {
	o := d.operation(method, d.name, body)
	if o.subresource = subresource; method == http.MethodPatch {
		o.header["Content-Type"] = "application/strategic-merge-patch+json"
	}
	return o
}

// all makes the operations that each subresource with a part of an object has. applied is a configuration of the part.
func (d *director) all(subresource, applied string) []operation {
	missing := d.in(subresource, http.MethodPatch, `{}`)
	missing.name = "missing"
	dry := d.in(subresource, http.MethodPatch, `{`+applied+`}`)
	dry.query = "dryRun=All"
	apply := func(manager, more string) operation {
		o := d.apply(manager, `{`+d.kind.typeMeta(d.kind.apiVersion)+`"metadata":{"name":"`+d.name+`","labels":{"applied":"yes"}},`+applied+`}`)
		o.query, o.subresource = o.query+more, subresource
		return o
	}
	stale := d.in(subresource, http.MethodPatch, `{"metadata":{"resourceVersion":"$first"}}`)
	return []operation{
		d.in(subresource, http.MethodGet, ""), d.in(subresource, http.MethodPost, `{}`), d.in(subresource, http.MethodDelete, ""), missing, dry, stale,
		apply("m1", ""), apply("m1", ""), apply("m2", "&force=true"), d.operation(http.MethodGet, d.name, ""),
	}
}

func ephemeralSteps(d *director) []operation {
	const name = "ephemeralcontainers"
	debug := `{"name":"debug","image":"busybox","targetContainerName":"c"}`
	patch := func(containers string) operation {
		return d.in(name, http.MethodPatch, `{"spec":{"ephemeralContainers":[`+containers+`]}}`)
	}
	merge := func(containers string) operation {
		o := patch(containers)
		o.header["Content-Type"] = mergeMedia
		return o
	}
	ops := append(d.existing(),
		patch(debug),
		d.operation(http.MethodGet, d.name, ""),
		d.in(name, http.MethodPatch, `{"metadata":{"labels":{"a":"b"}},"spec":{"nodeName":"n1","ephemeralContainers":[{"name":"second","image":"i"}]},"status":{"phase":"Running"}}`),
		patch(`{"name":"debug","image":"other"}`), merge(``), merge(debug),
		patch(`{"name":"c","image":"i"}`), patch(`{"name":"third","image":"i","targetContainerName":"debug","resources":{"requests":{"cpu":"1"}},"ports":[{"containerPort":80}]}`),
		patch(`{"name":"Bad_Name"}`),
		d.in(name, http.MethodPut, `{"metadata":{"name":"`+d.name+`"},"spec":{"ephemeralContainers":[{"name":"third","image":"i"}]}}`),
		d.patch(mergeMedia, `{"spec":{"ephemeralContainers":null}}`))
	return append(ops, d.all(name, `"spec":{"ephemeralContainers":[{"name":"applied","image":"i"}]}`)...)
}

func resizeSteps(d *director) []operation {
	const name = "resize"
	patch := func(spec string) operation { return d.in(name, http.MethodPatch, `{"spec":{`+spec+`}}`) }
	of := func(container, resources string) operation {
		return patch(`"containers":[{"name":"` + container + `","resources":` + resources + `}]`)
	}
	running := `{"name":"c","image":"i","imageID":"","ready":true,"restartCount":0,"state":{"running":{"startedAt":"2020-01-01T00:00:00Z"}}`
	ops := append(d.existing(),
		of("c", `{"requests":{"cpu":"1500m"},"limits":{"cpu":"3"}}`),
		d.operation(http.MethodGet, d.name, ""),
		d.in(name, http.MethodPatch, `{"metadata":{"labels":{"a":"b"}},"spec":{"nodeName":"n1","containers":[{"name":"d","image":"other","resources":{"limits":{"memory":"1Gi"}}}]},"status":{"phase":"Running"}}`),
		of("c", `{"requests":{"cpu":null}}`), of("c", `{"limits":null}`), of("c", `{"requests":{"ephemeral-storage":"2Gi"}}`), of("c", `{"requests":{"cpu":"4"}}`),
		of("c", `{"limits":{"memory":"1Gi"}}`), of("d", `{"requests":{"example.com/a":"1"},"limits":{"example.com/a":"1"}}`), of("c", `{"requests":{"cpu":"-1"}}`),
		patch(`"containers":[{"name":"c","resizePolicy":[{"resourceName":"cpu","restartPolicy":"RestartContainer"}]}]`),
		patch(`"initContainers":[{"name":"i","resources":{"requests":{"cpu":"2"}}}]`), patch(`"initContainers":[{"name":"i","resources":{"requests":{"ephemeral-storage":"2Gi"}}}]`),
		of("e", `{}`), patch(`"initContainers":[{"name":"e","image":"i"}],"containers":[{"name":"e","image":"i"}]`),
		d.in(name, http.MethodPut, `{"metadata":{"name":"`+d.name+`"},"spec":{"containers":[{"name":"d","image":"i"},{"name":"c","image":"i"}],"initContainers":[{"name":"j","image":"i"}]}}`),
		d.in(name, http.MethodPut, `{"metadata":{"name":"`+d.name+`"},"spec":{"containers":[{"name":"c","image":"i","resources":{"requests":{"cpu":"2"}}}]}}`),
		d.in(name, http.MethodPut, `{"metadata":{"name":"`+d.name+`"},"spec":{}}`),
		d.status(`{"containerStatuses":[`+running+`}]}`), of("c", `{"requests":{"cpu":"1700m"}}`),
		d.status(`{"containerStatuses":[`+running+`,"resources":{}}]}`), of("c", `{"requests":{"cpu":"1800m"}}`))
	return append(ops, d.all(name, `"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"1900m"}}}]}`)...)
}

// resized resizes a container of the Pod.
func (d *director) resized(list, container, resources string) operation {
	return d.in("resize", http.MethodPatch, `{"spec":{"`+list+`":[{"name":"`+container+`","resources":`+resources+`}]}}`)
}

func refusedResizes(d *director) []operation {
	return append(d.existing(), d.resized("containers", "c", `{"requests":{"cpu":"1500m"}}`), d.resized("containers", "c", `{"requests":{"cpu":"-1"},"limits":null}`), d.in("ephemeralcontainers", http.MethodPatch, `{"spec":{"ephemeralContainers":[{"name":"x","image":"i"}]}}`))
}

// wholePodSteps resize the containers of a Pod that has requests or limits of its own.
func wholePodSteps(d *director) []operation {
	return append(d.existing(), d.operation(http.MethodGet, d.name, ""),
		d.resized("containers", "c", `{"requests":{"cpu":"1100m"}}`), d.resized("containers", "c", `{"requests":{"cpu":"5"}}`), d.resized("containers", "c", `{"requests":{"cpu":"3500m"}}`),
		d.resized("initContainers", "s", `{"requests":{"cpu":"600m"}}`), d.resized("initContainers", "i", `{"requests":{"cpu":"3"}}`), d.resized("initContainers", "i", `{"requests":{"cpu":"4"}}`),
		d.operation(http.MethodGet, d.name, ""))
}

func approvalSteps(d *director, certificate string) []operation {
	const name = "approval"
	merge := func(subresource, status string) operation {
		o := d.patch(mergeMedia, `{"metadata":{"labels":{"a":"b"}},"spec":{"signerName":"example.com/other"},"status":{`+status+`}}`)
		o.subresource = subresource
		return o
	}
	condition := func(t, status string) string { return `{"type":"` + t + `","status":"` + status + `","reason":"r"}` }
	conditions := func(all string) string { return `"conditions":[` + all + `]` }
	approved, denied := condition("Approved", "True"), condition("Denied", "True")
	ops := append(d.existing(),
		merge("", conditions(approved)), merge("status", conditions(approved)), merge("status", conditions(condition("Failed", "False"))),
		merge(name, conditions(condition("Approved", "False"))), merge(name, conditions(approved+","+denied)), merge(name, conditions(condition("", "True"))),
		merge(name, conditions(condition("Approved", ""))), merge(name, conditions(condition("Other", "Wrong"))), merge(name, conditions(condition("Other", "True")+","+condition("Other", "True"))),
		merge(name, `"certificate":"`+certificate+`",`+conditions(approved+","+condition("Other", "Unknown"))),
		d.operation(http.MethodGet, d.name, ""),
		merge(name, conditions(approved+","+denied)), merge(name, `"conditions":null`), merge("status", `"conditions":null`),
		merge("status", conditions(approved+","+denied)), merge("status", conditions(approved+","+approved)), d.in(name, http.MethodPatch, `{"metadata":{"labels":{"-":"-"}}}`), merge("status", conditions(`{"type":"Approved","status":"True","reason":"other"}`)),
		merge("status", `"certificate":"`+certificate+`"`), merge("status", `"certificate":null`), merge(name, `"certificate":null`), merge("", `"certificate":null`),
		d.in(name, http.MethodPut, `{"metadata":{"name":"`+d.name+`"},"status":{"conditions":[`+approved+`]}}`))
	return append(ops, d.all(name, `"status":{"conditions":[{"type":"Approved","status":"True","message":"applied"}]}`)...)
}

func tokenSteps(d *director) []operation {
	post := func(fields string) operation { return d.in("token", http.MethodPost, `{`+fields+`}`) }
	bound := func(kind, more string) operation {
		return post(`"spec":{"audiences":["a","b"],"expirationSeconds":3607,"boundObjectRef":{"kind":"` + kind + `","name":"` + d.name + `"` + more + `}}`)
	}
	ref := func(fields string) operation { return post(`"spec":{"boundObjectRef":{` + fields + `}}`) }
	pods, secrets := &director{d.generator, kindOf("pods"), d.name}, &director{d.generator, kindOf("secrets"), d.name}
	missing, dry := post(``), post(``)
	missing.name, dry.query = "missing", "dryRun=All"
	metadata := `"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","metadata":`
	return append(d.existing(),
		post(``), dry, missing, d.in("token", http.MethodGet, ""), d.in("token", http.MethodPatch, `{}`),
		post(metadata+`{"name":"`+d.name+`","uid":"$uid","labels":{"a":"b"}},"spec":{"audiences":["a"],"expirationSeconds":600},"status":{"token":"t"}`),
		post(metadata+`{"name":"other"}`), post(metadata+`{"namespace":"other"}`), post(metadata+`{"uid":"99999999-2222-4333-8444-555555555555"}`),
		post(`"apiVersion":"v1","kind":"Pod"`), post(`"apiVersion":"authentication.k8s.io/v1beta1","kind":"TokenRequest"`), post(`"unknown":1`),
		post(`"spec":{"expirationSeconds":599}`), post(`"spec":{"expirationSeconds":8589934592}`), post(`"spec":{"expirationSeconds":0}`),
		bound("Pod", ``), bound("Secret", ``), bound("Node", ``), bound("Lease", `,"apiVersion":"coordination.k8s.io/v1"`),
		ref(`"kind":"Pod"`), ref(`"kind":"Secret","uid":"x"`), ref(`"kind":"Node"`), ref(`"kind":"Pod","name":"a/b"`), ref(`"kind":"Node","name":"a%b"`), ref(``), ref(`"name":"x"`),
		secrets.existing()[0], bound("Secret", `,"apiVersion":"v1"`), bound("Secret", `,"uid":"99999999-2222-4333-8444-555555555555"`),
		pods.operation(http.MethodPost, "", `{"metadata":{"name":"`+d.name+`"},"spec":{"serviceAccountName":"other","containers":[{"name":"c","image":"i"}]}}`), bound("Pod", ``),
		pods.read(http.MethodDelete, d.name, "gracePeriodSeconds=0"),
		pods.operation(http.MethodPost, "", `{"metadata":{"name":"`+d.name+`"},"spec":{"serviceAccountName":"`+d.name+`","nodeName":"n1","containers":[{"name":"c","image":"i"}]}}`), bound("Pod", ``))
}

// signing returns a request for a certificate and a certificate, as in a CertificateSigningRequest.
func signing(t *testing.T) (request, certificate string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	subject := pkix.Name{CommonName: "web"}
	asked, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: subject}, key)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{Subject: subject, SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	signed, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	text := func(kind string, content []byte) string {
		return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content}))
	}
	return text("CERTIFICATE REQUEST", asked), text("CERTIFICATE", signed)
}

// claims replaces the token in the status of a TokenRequest by its claims, whose times are seconds since it was issued.
func (n *names) claims(value any) {
	status, _ := value.(map[string]any)
	token, _ := status["token"].(string)
	if token == "" {
		return
	}
	status["expirationTimestamp"] = "<time>"
	text, err := base64.RawURLEncoding.DecodeString(strings.Split(token+"..", ".")[1])
	claims, _ := decode(string(text)).(map[string]any)
	if err != nil || claims == nil {
		return
	}
	seconds := func(value any) int64 {
		var n int64
		_, _ = fmt.Sscan(fmt.Sprint(value), &n)
		return n
	}
	issued := seconds(claims["iat"])
	for _, key := range []string{"exp", "nbf", "iat"} {
		claims[key] = seconds(claims[key]) - issued
	}
	status["token"] = claims
}
