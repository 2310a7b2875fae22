package conformance

import (
	"net/http"
	"strings"
)

// customResource is added to the verbs of operations on the custom resources of a definition.
const customResource = " (custom resource)"

// definitionMinimums returns the minimums of operations on definitions, and on their custom resources.
func definitionMinimums() []minimum {
	one := func(verb string, code int, directed func(d *director) []operation) minimum {
		return minimum{verb: verb, code: code, perThousand: 5, directed: directed}
	}
	defined := func(d *director) []operation { return []operation{d.define()} }
	// then are operations after the definition.
	then := func(ops ...func(d *director) operation) func(d *director) []operation {
		return func(d *director) []operation {
			all := defined(d)
			for _, o := range ops {
				all = append(all, o(d))
			}
			return all
		}
	}
	onDefinition := func(method, query, body string) func(d *director) operation {
		return func(d *director) operation {
			o := d.operation(method, d.definitionName(), body)
			o.query = query
			if method == http.MethodPatch {
				o.header["Content-Type"] = "application/merge-patch+json"
			}
			return o
		}
	}
	read := onDefinition(http.MethodGet, "", "")
	changed := onDefinition(http.MethodPatch, "", `{"metadata":{"labels":{"app":"web"}}}`)
	replaced := func(version, spec string) func(d *director) operation {
		return func(d *director) operation {
			return d.operation(http.MethodPut, d.definitionName(), strings.Replace(d.definition(d.definitionName(), `,"resourceVersion":"`+version+`"`), `"scope"`, spec+`"scope"`, 1))
		}
	}
	applied := func(manager, label string) func(d *director) operation {
		return func(d *director) operation {
			body := strings.Replace(d.definition(d.definitionName(), ""), `"labels":{`, `"labels":{"app":"`+label+`",`, 1)
			o := d.apply(manager, body)
			o.name = d.definitionName()
			return o
		}
	}
	object := func(method, body string) func(d *director) operation {
		return func(d *director) operation { return d.instance(method, body) }
	}
	created := object(http.MethodPost, `"spec":{"size":1}`)
	appliedObject := func(manager, size string) func(d *director) operation {
		return func(d *director) operation {
			o := d.instance(http.MethodPatch, `"spec":{"size":`+size+`}`)
			o.query, o.header["Content-Type"] = "fieldManager="+manager, "application/apply-patch+yaml"
			return o
		}
	}
	all := func(method string) func(d *director) operation {
		return func(d *director) operation {
			o := d.instance(method, "")
			o.name, o.body = "", ""
			return o
		}
	}
	withoutStorage := func(d *director) operation {
		o := d.define()
		o.body = strings.Replace(o.body, `"storage":true`, `"storage":false`, 1)
		return o
	}
	return []minimum{
		one("create", http.StatusCreated, defined),
		one("create", http.StatusConflict, func(d *director) []operation { return append(defined(d), defined(d)...) }),
		one("create", http.StatusUnprocessableEntity, func(d *director) []operation { return []operation{withoutStorage(d)} }),
		one("update", http.StatusOK, then(read, replaced("$rv", ""))),
		one("update", http.StatusConflict, then(read, changed, replaced("$old", ""))),
		one("update", http.StatusNotFound, func(d *director) []operation { return []operation{replaced("1", "")(d)} }),
		one("update", http.StatusUnprocessableEntity, then(read, replaced("$rv", `"conversion":{"strategy":"Wrong"},`))),
		one("patch", http.StatusOK, then(changed)),
		one("patch", http.StatusNotFound, func(d *director) []operation { return []operation{changed(d)} }),
		one("patch", http.StatusUnprocessableEntity, then(onDefinition(http.MethodPatch, "", `{"spec":{"scope":"Wrong"}}`))),
		one("apply", http.StatusCreated, func(d *director) []operation { return []operation{applied("m1", "a")(d)} }),
		one("apply", http.StatusOK, then(applied("m1", "a"))),
		one("apply", http.StatusConflict, func(d *director) []operation { return []operation{applied("m1", "a")(d), applied("m2", "b")(d)} }),
		one("delete", http.StatusOK, then(created, onDefinition(http.MethodDelete, "", ""))),
		one("delete", http.StatusNotFound, func(d *director) []operation { return []operation{onDefinition(http.MethodDelete, "", "")(d)} }),
		one("get", http.StatusOK, then(read)),
		one("get", http.StatusNotFound, func(d *director) []operation { return []operation{read(d)} }),
		one("list", http.StatusOK, func(d *director) []operation { return append(defined(d), d.list(http.MethodGet, "")) }),

		one("create"+customResource, http.StatusCreated, then(created)),
		one("create"+customResource, http.StatusNotFound, func(d *director) []operation { return []operation{created(d)} }),
		one("create"+customResource, http.StatusConflict, then(created, created)),
		one("create"+customResource, http.StatusUnprocessableEntity, then(object(http.MethodPost, `"spec":{"size":"x"}`))),
		one("update"+customResource, http.StatusOK, then(created, object(http.MethodPut, `"spec":{"size":2}`))),
		one("update"+customResource, http.StatusNotFound, then(object(http.MethodPut, `"spec":{"size":2}`))),
		one("patch"+customResource, http.StatusOK, then(created, object(http.MethodPatch, `"spec":{"size":2}`))),
		one("patch"+customResource, http.StatusNotFound, then(object(http.MethodPatch, `"spec":{"size":2}`))),
		one("apply"+customResource, http.StatusCreated, then(appliedObject("m1", "1"))),
		one("apply"+customResource, http.StatusConflict, then(appliedObject("m1", "1"), appliedObject("m2", "2"))),
		one("delete"+customResource, http.StatusOK, then(created, object(http.MethodDelete, ""))),
		one("delete"+customResource, http.StatusNotFound, then(object(http.MethodDelete, ""))),
		one("deletecollection"+customResource, http.StatusOK, then(created, all(http.MethodDelete))),
		one("get"+customResource, http.StatusOK, then(created, object(http.MethodGet, ""))),
		one("get"+customResource, http.StatusNotFound, then(object(http.MethodGet, ""))),
		one("list"+customResource, http.StatusOK, then(created, all(http.MethodGet))),
		one("list"+customResource, http.StatusNotFound, func(d *director) []operation { return []operation{all(http.MethodGet)(d)} }),
	}
}

// definitionName is the name of a definition that only the director uses.
func (d *director) definitionName() string {
	return "foos." + strings.TrimPrefix(d.name, "$ns-") + ".$ns.example.com"
}

// definition returns a valid definition with two versions.
func (d *director) definition(name, metadata string) string {
	plural, group, _ := strings.Cut(name, ".")
	schema := `{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","properties":{"size":{"type":"integer"},"note":{"type":"string"}}},"status":{"type":"object","properties":{"ready":{"type":"integer"}}}}}}`
	var versions []string
	for _, v := range []string{"v1", "v2"} {
		versions = append(versions, `{"name":"`+v+`","served":true,"storage":`+map[bool]string{true: "true", false: "false"}[v == "v1"]+`,"schema":`+schema+`,"subresources":{"status":{}}}`)
	}
	return `{"apiVersion":"` + definitionsVersion + `","kind":"CustomResourceDefinition","metadata":{"name":"` + name + `","labels":{"sequence":"$ns"}` + metadata +
		`},"spec":{"group":"` + group + `","scope":"Namespaced","names":{"plural":"` + plural + `","kind":"` + map[string]string{"foos": "Foo", "bars": "Bar"}[plural] + `"},` +
		`"versions":[` + strings.Join(versions, ",") + `]}}`
}

// define creates the definition of the director.
func (d *director) define() operation {
	return d.operation(http.MethodPost, "", d.definition(d.definitionName(), ""))
}

// instance makes an operation on a custom resource of the director's definition.
func (d *director) instance(method, fields string) operation {
	_, group, _ := strings.Cut(d.definitionName(), ".")
	o := d.operation(method, "a", `{"apiVersion":"`+group+`/v1","kind":"Foo","metadata":{"name":"a"`+map[bool]string{true: `,"resourceVersion":"$rv"`}[method == http.MethodPut]+`},`+fields+`}`)
	o.resource, o.apiVersion, o.namespace = "foos", group+"/v1", "$ns"
	switch method {
	case http.MethodPost:
		o.name = ""
	case http.MethodPatch:
		o.header["Content-Type"] = "application/merge-patch+json"
	case http.MethodGet, http.MethodDelete:
		o.body = ""
	}
	return o
}
