package conformance

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
)

// TestSmokeReviews compares the reviews of tokens and of permissions with those of a simulated cluster.
func TestSmokeReviews(t *testing.T) {
	r := newRunner(t, simulated(t, nil))
	g := newGenerator(kinds(), 1, firstDirected)
	client, err := rest.HTTPClientFor(rest.AnonymousClientConfig(local.RESTConfig()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.CloseIdleConnections)
	withoutCertificate := &server{name: "real", client: client, base: r.real.base}
	for name, steps := range map[string]func(d *director) []operation{
		"forms":                 reviewForms,
		"tokens":                tokenReviews,
		"permissions":           accessReviews,
		"permissions of a user": selfReviews,
		"requests with tokens":  tokenRequests,
	} {
		t.Run(name, func(t *testing.T) {
			d, sides := newDirector(g, &kind{resource: "serviceaccounts", name: "ServiceAccount", apiVersion: "v1"}), r.begin(t)
			for _, s := range sides {
				createRoles(t, s)
			}
			for i, o := range steps(d) {
				if sides[0].server = r.real; o.header["Authorization"] != "" {
					sides[0].server = withoutCertificate
				}
				if difference := r.runIn(t, sides, []operation{o}); difference != "" {
					t.Errorf("step %d: %s\n%s", i, o, difference)
				}
			}
		})
	}
}

const (
	authentication = "authentication.k8s.io/v1"
	authorization  = "authorization.k8s.io/v1"
)

// review makes a request for a kind of reviews. headers are names and values.
func (d *director) review(method, resource, body string, headers ...string) operation {
	o := operation{kind: d.kind, method: method, apiVersion: authorization, resource: resource, body: body, header: map[string]string{}}
	switch resource {
	case "tokenreviews", "selfsubjectreviews":
		o.apiVersion = authentication
	case "localsubjectaccessreviews":
		o.namespace = "$ns"
	}
	for i := 0; i < len(headers); i += 2 {
		o.header[headers[i]] = headers[i+1]
	}
	return o
}

func (d *director) access(spec string) operation {
	return d.review(http.MethodPost, "subjectaccessreviews", `{"spec":{`+spec+`}}`)
}

// as lets operations impersonate a user, because the servers have different administrators.
func as(user string, ops ...operation) []operation {
	for _, o := range ops {
		o.header["Impersonate-User"] = user
	}
	return ops
}

func reviewForms(d *director) (ops []operation) {
	const user, all = `"user":"jane","groups":["g"]`, `"resourceAttributes":{"verb":"get","resource":"pods","namespace":"$ns"}`
	for _, resource := range []string{
		"tokenreviews", "selfsubjectreviews", "subjectaccessreviews", "selfsubjectaccessreviews", "localsubjectaccessreviews", "selfsubjectrulesreviews",
	} {
		for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodPatch, http.MethodDelete} {
			named := d.review(method, resource, `{}`)
			named.name = "a"
			ops = append(ops, d.review(method, resource, `{}`), named)
		}
		all, one, other := d.review(http.MethodGet, resource, ""), d.review(http.MethodPost, resource, `{}`), d.review(http.MethodPost, resource, `{}`)
		all.namespace, one.name, other.namespace = "", "a", "$ns"
		status := one
		status.subresource = "status"
		watch := d.review(http.MethodGet, resource, "")
		watch.query = "watch=true"
		ops = append(ops, all, one, status, watch, as("jane", d.review(http.MethodPost, resource, `{}`))[0], d.review(http.MethodPost, resource, `{"kind":"Pod","apiVersion":"v1"}`),
			as("jane", d.review(http.MethodPost, resource, `{"spec":1}`))[0])
		if resource != "localsubjectaccessreviews" {
			ops = append(ops, other)
		}
	}
	post := func(resource, spec string) operation {
		return d.review(http.MethodPost, resource, `{"metadata":{"name":"a","labels":{"b":"c"}},"spec":{`+spec+`}}`)
	}
	for _, resource := range []string{"subjectaccessreviews", "localsubjectaccessreviews", "selfsubjectaccessreviews"} {
		user := user + ","
		if resource == "selfsubjectaccessreviews" {
			user = ""
		}
		ops = append(ops, post(resource, user+all))
		for _, spec := range []string{
			user + all, `"groups":["g"],` + all, all, user, `"nonResourceAttributes":{"path":"/","verb":"get"}`, user + `"nonResourceAttributes":{"path":"/other","verb":"get"},` + all,
			user + `"nonResourceAttributes":{"path":"/other","verb":"get"}`, user + `"resourceAttributes":{"namespace":"other"}`, user + `"resourceAttributes":{}`, user + `"unknown":1,` + all, "",
		} {
			ops = append(ops, as("jane", d.review(http.MethodPost, resource, `{"spec":{`+spec+`},"status":{"allowed":true,"reason":"x"}}`))...)
			o := d.review(http.MethodPost, resource, `{"spec":{`+spec+`},"status":{"allowed":true,"reason":"x"}}`)
			if resource != "selfsubjectaccessreviews" {
				ops = append(ops, o)
			}
		}
	}
	missing := d.review(http.MethodPost, "localsubjectaccessreviews", `{"spec":{`+user+`,"resourceAttributes":{"namespace":"$ns-missing"}}}`)
	missing.namespace = "$ns-missing"
	namespaced := d.review(http.MethodPost, "localsubjectaccessreviews", `{"metadata":{"namespace":"other"},"spec":{`+user+`,`+all+`}}`)
	dry := d.access(user + "," + all)
	dry.query = "dryRun=All"
	invalid := d.access(user + "," + all)
	invalid.query = "dryRun=Some"
	metadata := d.review(http.MethodPost, "subjectaccessreviews", `{"spec":{`+user+`,`+all+`}}`, "Accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1")
	protobuf := d.review(http.MethodPost, "subjectaccessreviews", `{"spec":{`+user+`,`+all+`}}`, "Accept", "application/vnd.kubernetes.protobuf")
	return append(ops, missing, namespaced, dry, invalid, metadata, protobuf,
		d.review(http.MethodPost, "tokenreviews", `{"metadata":{"name":"a","namespace":"b","labels":{"c":"d"}},"spec":{"token":"x"}}`),
		d.review(http.MethodPost, "selfsubjectrulesreviews", `{"spec":{}}`))
}

func tokenReviews(d *director) []operation {
	token := func(spec string) operation { return d.in("token", http.MethodPost, `{`+spec+`}`) }
	post := func(spec string) operation {
		return d.review(http.MethodPost, "tokenreviews", `{"spec":{`+spec+`},"status":{"authenticated":true,"error":"x"}}`)
	}
	pods, secrets := &director{d.generator, kindOf("pods"), d.name}, &director{d.generator, kindOf("secrets"), d.name}
	pod := pods.operation(http.MethodPost, "", `{"metadata":{"name":"`+d.name+`"},"spec":{"serviceAccountName":"`+d.name+`","nodeName":"n1","containers":[{"name":"c","image":"i"}]}}`)
	bound := func(kind string) operation {
		return token(`"spec":{"audiences":["a","b"],"boundObjectRef":{"kind":"` + kind + `","name":"` + d.name + `"}}`)
	}
	const own, issuer = `"token":"$token"`, `"https://kubernetes.default.svc.cluster.local"`
	return append(d.existing(),
		post(``), post(`"token":""`), post(`"token":"a"`), post(`"token":"a.b.c"`), post(`"token":"a","audiences":["x"]`), post(`"token":"a b"`),
		token(``), post(own), post(own+`,"audiences":["a"]`), post(own+`,"audiences":["a",`+issuer+`,"b"]`), post(`"token":"$tokenA"`),
		token(`"spec":{"audiences":["a","b"]}`), post(own), post(own+`,"audiences":["c","b","a"]`),
		pod, bound("Pod"), post(own+`,"audiences":["a"]`), bound("Pod"), pods.read(http.MethodDelete, d.name, "gracePeriodSeconds=0"), pods.operation(http.MethodGet, d.name, ""),
		post(own+`,"audiences":["a"]`), pod, post(own+`,"audiences":["b"]`),
		secrets.existing()[0], bound("Secret"), post(own+`,"audiences":["a"]`), bound("Secret"), secrets.read(http.MethodDelete, d.name, ""), secrets.operation(http.MethodGet, d.name, ""),
		post(own+`,"audiences":["a"]`), secrets.existing()[0], post(own+`,"audiences":["b"]`),
		token(`"spec":{"audiences":["a"]}`), d.read(http.MethodDelete, d.name, ""), d.operation(http.MethodGet, d.name, ""), post(own+`,"audiences":["a"]`),
		d.existing()[0], post(own+`,"audiences":["a","b"]`))
}

// createRoles creates a ClusterRole and a Role with their bindings, and a binding that lacks its role.
func createRoles(t *testing.T, s *side) {
	t.Helper()
	create := func(resource, name, content string) {
		namespace := ""
		if !strings.HasPrefix(resource, "cluster") {
			namespace = "namespaces/$ns/"
		}
		path, body := "/apis/rbac.authorization.k8s.io/v1/"+namespace+resource, `{"metadata":{"name":"`+name+`"},`+content+`}`
		if res := s.send(t.Context(), http.MethodPost, s.resolve(operation{}, path), s.resolve(operation{}, body), nil); res.code != http.StatusCreated {
			t.Fatalf("%s: %d %s", path, res.code, res.body)
		}
	}
	const subjects = `"subjects":[{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":"other"},{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":"$ns-jane"},{"kind":"Group","apiGroup":"rbac.authorization.k8s.io","name":"$ns-g"},{"kind":"ServiceAccount","name":"a","namespace":"$ns"}]`
	create("clusterroles", "$ns-c", `"rules":[{"apiGroups":["apps"],"resources":["deployments","*/scale"],"verbs":["get","update"]},{"nonResourceURLs":["/metrics","/debug/*"],"verbs":["get"]}]`)
	create("clusterrolebindings", "$ns-c", `"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"$ns-c"},`+subjects)
	create("roles", "r", `"rules":[{"apiGroups":[""],"resources":["pods"],"resourceNames":["p"],"verbs":["*"]}]`)
	create("rolebindings", "r", `"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"r"},"subjects":[{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":"$ns-jane"},{"kind":"ServiceAccount","name":"a"}]`)
	create("rolebindings", "s", `"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"missing"},"subjects":[{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":"$ns-joe"}]`)
	for _, spec := range []string{`"user":"$ns-jane"`, `"groups":["$ns-g"]`, `"user":"$ns-joe"`} { // the real server reads them from caches
		body := `{"spec":{` + spec + `,"resourceAttributes":{"verb":"get","group":"apps","resource":"deployments","name":"p","namespace":"$ns"}}}`
		err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
			res := s.send(ctx, http.MethodPost, "/apis/"+authorization+"/subjectaccessreviews", s.resolve(operation{}, body), nil)
			return strings.Contains(res.body, `"reason":"RBAC: `), nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func accessReviews(d *director) []operation {
	var ops []operation
	for _, user := range []string{
		`"user":"$ns-jane"`, `"user":"$ns-joe"`, `"groups":["$ns-g"]`, `"user":"system:serviceaccount:$ns:a"`, `"user":"x","groups":["system:masters"]`, `"user":"x"`,
	} {
		for _, attributes := range []string{
			`"verb":"get","group":"apps","resource":"deployments","namespace":"$ns"`, `"verb":"get","group":"apps","resource":"deployments"`,
			`"verb":"delete","group":"apps","resource":"deployments"`, `"verb":"update","group":"apps","resource":"statefulsets","subresource":"scale"`,
			`"verb":"get","resource":"pods","name":"p","namespace":"$ns"`, `"verb":"get","resource":"pods","namespace":"$ns"`, `"verb":"get","resource":"pods","name":"p"`,
			`"verb":"*","resource":"*","group":"*"`, `"verb":"list","resource":"pods","namespace":"$ns","version":"v1"`,
		} {
			ops = append(ops, d.access(user+`,"resourceAttributes":{`+attributes+`}`))
		}
		for _, path := range []string{"/metrics", "/metrics/a", "/debug", "/debug/", "/debug/a/b", ""} {
			ops = append(ops, d.access(user+`,"nonResourceAttributes":{"verb":"get","path":"`+path+`"}`))
		}
		ops = append(ops, d.access(user+`,"nonResourceAttributes":{"verb":"post","path":"/metrics"}`),
			d.review(http.MethodPost, "localsubjectaccessreviews", `{"spec":{`+user+`,"resourceAttributes":{"verb":"get","resource":"pods","name":"p","namespace":"$ns"}}}`))
	}
	return ops
}

func selfReviews(d *director) []operation {
	var ops []operation
	for _, user := range []string{"$ns-jane", "$ns-joe", "system:serviceaccount:$ns:a", "system:anonymous", "jane"} {
		me := d.review(http.MethodPost, "selfsubjectreviews", `{"metadata":{"name":"a"}}`, "Impersonate-Uid", "u", "Impersonate-Extra-Example.com%2fScopes", "a", "Impersonate-Group", "system:masters")
		ops = append(ops, as(user, me, d.review(http.MethodPost, "selfsubjectreviews", `{}`),
			d.review(http.MethodPost, "selfsubjectaccessreviews", `{"spec":{"resourceAttributes":{"verb":"get","resource":"pods","name":"p","namespace":"$ns"}}}`),
			d.review(http.MethodPost, "selfsubjectaccessreviews", `{"spec":{"resourceAttributes":{"verb":"get","group":"apps","resource":"deployments"}}}`),
			d.review(http.MethodPost, "selfsubjectaccessreviews", `{"spec":{"nonResourceAttributes":{"verb":"get","path":"/debug/a"}}}`))...)
	}
	return ops
}

// tokenRequests makes requests with the token of a service account, whose Role lets it read the Pod p. A request with an
// invalid token is compared only where the server in memory has issued it: it accepts all others.
func tokenRequests(d *director) []operation {
	account := &director{d.generator, d.kind, "a"}
	pods, maps := &director{d.generator, kindOf("pods"), "p"}, &director{d.generator, kindOf("configmaps"), "m"}
	with := func(o operation) operation {
		o.header["Authorization"] = "Bearer $token"
		return o
	}
	create := with(maps.existing()[0])
	create.body = `{"metadata":{"name":"m"}}`
	return []operation{
		account.existing()[0], account.in("token", http.MethodPost, `{}`),
		with(pods.operation(http.MethodGet, "p", "")), pods.existing()[0], with(pods.operation(http.MethodGet, "p", "")),
		with(pods.list(http.MethodGet, "")), create, with(d.operation(http.MethodGet, "a", "")),
		with(d.review(http.MethodPost, "selfsubjectreviews", `{}`)), with(d.review(http.MethodPost, "tokenreviews", `{"spec":{"token":"$token"}}`)),
		with(d.review(http.MethodPost, "selfsubjectaccessreviews", `{"spec":{"resourceAttributes":{"verb":"get","resource":"pods","name":"p","namespace":"$ns"}}}`)),
		account.in("token", http.MethodPost, `{"spec":{"audiences":["a"]}}`), with(pods.operation(http.MethodGet, "p", "")),
	}
}
