package kubectl

import (
	"fmt"
	"strings"
)

// step is a command. Its words are separated by spaces; input is its standard input.
type step struct{ command, input string }

const (
	config = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, labels: {app: web}}\ndata: {k: '%s'}\n"
	widget = "apiVersion: kubectl.example.com/v1\nkind: Widget\nmetadata: {name: w}\nspec: {size: %d}\n"
)

// permissionSteps ask what accounts may do.
func permissionSteps() []step {
	const account = " --as system:serviceaccount:permissions:default"
	return []step{
		{"auth can-i create configmaps", ""},
		{"auth can-i list configmaps" + account, ""},
		{"create role reader --verb=get,list --resource=configmaps", ""},
		{"create rolebinding reader --role=reader --serviceaccount=permissions:default", ""},
		{"auth can-i list configmaps" + account, ""},
		{"auth can-i delete configmaps" + account, ""},
		{"auth can-i list configmaps --all-namespaces" + account, ""},
		{"auth can-i get configmaps/a --subresource=status" + account, ""},
		{"auth can-i get unknown" + account, ""},
		{"get configmaps -o name" + account, ""},
		{"get secrets -o name" + account, ""},
	}
}

// objectSteps work on single objects.
func objectSteps() []step {
	return []step{
		{"create -f -", fmt.Sprintf(config, "1")},
		{"create -f -", fmt.Sprintf(config, "1")},
		{"get configmap a -o yaml", ""},
		{"get configmaps -l app=web -o name", ""},
		{"get configmap missing", ""},
		{"apply -f -", fmt.Sprintf(config, "2")},
		{"apply -f -", fmt.Sprintf(config, "2")},
		{"diff -f -", fmt.Sprintf(config, "3")},
		{"apply -f -", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndatum: {k: '1'}\n"},
		{"apply --server-side -f -", fmt.Sprintf(config, "3")},
		{"apply --server-side --force-conflicts -f -", fmt.Sprintf(config, "3")},
		{"apply --server-side --field-manager other -f -", fmt.Sprintf(config, "4")},
		{"apply --server-side --dry-run=server -f -", fmt.Sprintf(config, "5")},
		{"label configmap a tier=front", ""},
		{"label configmap a tier=back", ""},
		{"label configmap a tier=back --overwrite", ""},
		{"annotate configmap a note=x", ""},
		{"edit configmap a", ""},
		{"get configmap a -o jsonpath={.metadata.labels}", ""},
		{"patch configmap a --type merge -p {\"data\":{\"m\":\"1\"}}", ""},
		{"patch configmap a --type json -p [{\"op\":\"remove\",\"path\":\"/data/m\"}]", ""},
		{"patch configmap a -p {\"data\":{\"s\":\"1\"}}", ""},
		{"replace -f -", fmt.Sprintf(config, "6")},
		{"get configmap a -o jsonpath={.data}", ""},
		{"get configmap a -o yaml --show-managed-fields", ""},
		{"wait configmap/a --for=jsonpath={.data.k}=6 --timeout=5s", ""},
		{"wait configmap/a --for=condition=Ready --timeout=1s", ""},
		{"explain configmap.data", ""},
		{"explain configmaps.metadata.name", ""},
		{"create service clusterip web --tcp=80:8080", ""},
		{"get service web -o jsonpath={.spec.ports}", ""},
		{"apply -f -", fmt.Sprintf(widget, 1)},
		{"apply -f -", fmt.Sprintf(widget, 2)},
		{"apply --server-side -f -", fmt.Sprintf(widget, 3)},
		{"apply --server-side --force-conflicts -f -", fmt.Sprintf(widget, 3)},
		{"patch widget w --subresource=status --type merge -p {\"status\":{\"conditions\":[{\"type\":\"Ready\",\"status\":\"True\"}]}}", ""},
		{"wait widget/w --for=condition=Ready --timeout=5s", ""},
		{"patch widget w --type strategic -p {}", ""},
		{"explain widget.spec", ""},
		{"get widget w -o jsonpath={.spec}", ""},
		{"patch widget w --type merge -p {\"metadata\":{\"finalizers\":[\"example.com/a\"]}}", ""},
		{"delete widget w --wait=false", ""},
		{"get widget w -o jsonpath={.metadata.finalizers}", ""},
		{"patch widget w --type json -p [{\"op\":\"remove\",\"path\":\"/metadata/finalizers\"}]", ""},
		{"wait widget/w --for=delete --timeout=5s", ""},
		{"delete configmap a", ""},
		{"delete configmap a", ""},
		{"delete service web", ""},
		{"create -f - --dry-run=server -o yaml", fmt.Sprintf(config, "1")},
		{"create -f -", fmt.Sprintf(config, "1")},
		{"create -f - --dry-run=server", fmt.Sprintf(config, "1")},
		{"diff -f -", fmt.Sprintf(config, "1")},
		{"diff --server-side -f -", fmt.Sprintf(config, "2")},
		{"replace -f -", fmt.Sprintf(config, "7")},
		{"replace --force -f -", fmt.Sprintf(config, "8")},
		{"replace -f -", strings.Replace(fmt.Sprintf(config, "7"), "name: a", "name: missing", 1)},
		{"get configmap a -o jsonpath={.data}", ""},
		{"label configmap a app-", ""},
		{"label configmap a app-", ""},
		{"label configmap a x=y --resource-version=1", ""},
		{"label configmap a not/a/key=x", ""},
		{"annotate configmap a a=b c=d", ""},
		{"annotate configmap a a=c", ""},
		{"annotate configmap a a=c --overwrite", ""},
		{"annotate configmap a a- c-", ""},
		{"annotate configmap a --list", ""},
		{"patch configmap a --type json -p [{\"op\":\"test\",\"path\":\"/data/k\",\"value\":\"1\"}]", ""},
		{"patch configmap a --type json -p [{\"op\":\"remove\",\"path\":\"/data/missing\"}]", ""},
		{"patch configmap a --type merge -p {\"data\":[]}", ""},
		{"patch configmap a --type merge -p {}", ""},
		{"patch configmap a --dry-run=server -p {\"data\":{\"t\":\"1\"}} -o jsonpath={.data}", ""},
		{"patch configmap missing -p {}", ""},
		{"get --raw /api/v1/namespaces/objects/configmaps/missing", ""},
		{"get --raw /apis/apps/v1/missing", ""},
		{"get --raw /missing", ""},
		{"get --raw /readyz", ""},
		{"get --raw /apis/kubectl.example.com/v1", ""},
		{"get nothings", ""},
		{"get configmaps,widgets -l app!=x,app -o name", ""},
		{"get configmap a -o custom-columns=N:.metadata.name,D:.data.k", ""},
		{"get configmaps --field-selector metadata.name=a -o name", ""},
		{"get configmaps --field-selector data.k=1 -o name", ""},
		{"get configmaps -l app=(a -o name", ""},
		{"explain widget", ""},
		{"explain deployment.spec.selector", ""},
		{"explain pod.spec.tolerations.key --recursive", ""},
		{"explain configmap.missing", ""},
		{"wait configmap/a --for=jsonpath={.data.k}=9 --timeout=1s", ""},
		{"wait configmap/missing --for=create --timeout=1s", ""},
		{"delete configmap a --dry-run=server", ""},
		{"delete configmap a", ""},
	}
}

// collectionSteps work on several objects.
func collectionSteps() []step {
	const set = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s, labels: {set: x}}\n---\n"
	const event = "apiVersion: v1\nkind: Event\nmetadata: {name: e}\ntype: Normal\nreason: Tested\nmessage: it works\n" +
		"involvedObject: {apiVersion: v1, kind: ConfigMap, name: b, namespace: collections}\nlastTimestamp: '2020-01-01T00:00:00Z'\n"
	return []step{
		{"apply -f -", fmt.Sprintf(set+set, "a", "b")},
		{"apply --prune -l set=x --prune-allowlist=core/v1/ConfigMap -f -", fmt.Sprintf(set+set, "b", "c")},
		{"get configmaps -l set=x -o name", ""},
		{"apply --server-side --prune -l set=x --prune-allowlist=core/v1/ConfigMap -f -", fmt.Sprintf(set, "c")},
		{"get configmaps -l set=x -o name", ""},
		{"label configmaps -l set=x more=y", ""},
		{"get configmaps -l set=x,more!=z -o name", ""},
		{"create secret generic s --from-literal=a=b", ""},
		{"get secret s -o jsonpath={.data}", ""},
		{"create quota q --hard=pods=1", ""},
		{"create serviceaccount sa", ""},
		{"create role r --verb=get --resource=pods", ""},
		{"create rolebinding rb --role=r --serviceaccount=collections:sa", ""},
		{"create ingress i --rule=a.example.com/x=web:80", ""},
		{"create poddisruptionbudget p --selector=a=b --min-available=1", ""},
		{"get cm,sa,ing,pdb,deploy,po,svc,sts,ds,rs,quota,pvc,hpa,cj --field-selector metadata.name!=default,metadata.name!=kube-root-ca.crt -o name", ""},
		{"get all -o name", ""},
		{"create -f -", event},
		{"events --for configmap/b", ""},
		{"delete secrets,resourcequotas,serviceaccounts --field-selector metadata.name!=default", ""},
		{"delete configmaps -l set=x", ""},
		{"delete role,rolebinding,ingress,pdb --all", ""},
	}
}

const (
	web = `apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: %d
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {terminationGracePeriodSeconds: 0, containers: [{name: web, image: 'web:%d'}]}
`
	available = "wait deployment/web --for=condition=Available --timeout=30s"
	complete  = "rollout status deployment/web --timeout=30s"
)

// workloadSteps need controllers.
func workloadSteps() []step {
	return []step{
		{"create -f -", fmt.Sprintf(web, 2, 1)},
		{complete, ""},
		{available, ""},
		{"rollout history deployment/web", ""},
		{"scale deployment/web --replicas=3", ""},
		{complete, ""},
		{"scale deployment/web --replicas=1 --current-replicas=2", ""},
		{"scale deployment/web --replicas=1 --current-replicas=3", ""},
		{complete, ""},
		{"get deployment web -o jsonpath={.spec.replicas},{.status.replicas}", ""},
		{"set image deployment/web web=web:2", ""},
		{complete, ""},
		{"set image deployment/web missing=web:2", ""},
		{"set env deployment/web A=b", ""},
		{complete, ""},
		{"set env deployment/web --list", ""},
		{"set env deployment/web A-", ""},
		{complete, ""},
		{"set resources deployment/web --limits=cpu=1", ""},
		{complete, ""},
		{"annotate deployment/web kubernetes.io/change-cause=limits", ""},
		{"rollout history deployment/web", ""},
		{"rollout history deployment/web --revision=3", ""},
		{"rollout restart deployment/web", ""},
		{complete, ""},
		{"rollout undo deployment/web", ""},
		{complete, ""},
		{"rollout undo deployment/web --to-revision=99", ""},
		{"rollout pause deployment/web", ""},
		{"rollout pause deployment/web", ""},
		{"rollout restart deployment/web", ""},
		{"rollout undo deployment/web", ""},
		{"rollout resume deployment/web", ""},
		{complete, ""},
		{"autoscale deployment/web --max=3 --cpu=50%", ""},
		{"get hpa web -o jsonpath={.spec.metrics}", ""},
		{"delete hpa web", ""},
		{"expose deployment/web --port=80", ""},
		{"get service web -o jsonpath={.spec.selector}", ""},
		{"logs deployment/web -c missing", ""},
		{"logs missing", ""},
		{"wait pod -l app=web --for=condition=Ready --timeout=30s", ""},
		{"delete deployment web --cascade=orphan", ""},
		{"get replicasets -o jsonpath={.items[*].metadata.ownerReferences}", ""},
		{"create -f -", fmt.Sprintf(web, 1, 1)},
		{complete, ""},
		{"delete deployment web --cascade=foreground", ""},
		{"wait pod -l app=web --for=delete --timeout=30s", ""},
		{"get pods,replicasets -o name", ""},
		{"delete service web", ""},
	}
}

// descriptionSteps describe objects of several kinds.
func descriptionSteps() []step {
	return []step{
		{"create configmap c --from-literal=a=b", ""},
		{"describe configmap c", ""},
		{"create secret generic s --from-literal=a=b", ""},
		{"describe secret s", ""},
		{"apply -f -", fmt.Sprintf(widget, 1)},
		{"describe widget w", ""},
		{"create -f -", fmt.Sprintf(web, 0, 1)},
		{complete, ""},
		{"describe deployment web --show-events=false", ""},
		{"describe replicasets --show-events=false", ""},
		{"create service clusterip web --tcp=80:8080", ""},
		{"describe service web", ""},
		{"describe namespace descriptions", ""},
		{"create ingress i --rule=a.example.com/x=web:80", ""},
		{"describe ingress i", ""},
		{"create job j --image=x", ""},
		{"wait job/j --for=condition=Complete --timeout=30s", ""},
		{"describe job j --show-events=false", ""},
		{"describe configmap missing", ""},
		{"delete deployment,service,job,ingress,widget --all", ""},
	}
}

// nodeSteps work on a node.
func nodeSteps() []step {
	return []step{
		{"create -f -", "{apiVersion: v1, kind: Node, metadata: {name: extra}}"},
		{"cordon extra", ""},
		{"cordon extra", ""},
		{"get node extra -o jsonpath={.spec.unschedulable}", ""},
		{"uncordon extra", ""},
		{"uncordon extra", ""},
		{"taint node extra a=b:NoSchedule", ""},
		{"create -f -", "{apiVersion: v1, kind: Pod, metadata: {name: alone}, spec: {nodeName: extra, terminationGracePeriodSeconds: 0, containers: [{name: c, image: c}]}}"},
		{"drain extra --timeout=20s", ""},
		{"drain extra --force --timeout=20s", ""},
		{"get pod alone -o name", ""},
		{"get node extra -o jsonpath={.spec.unschedulable}", ""},
		{"delete node extra", ""},
	}
}

// waitingStep is a command that waits. Its object exists before. When the command has printed its first line, the other
// command runs.
type waitingStep struct{ object, command, meanwhile string }

func waitingSteps() []waitingStep {
	finalized := strings.Replace(fmt.Sprintf(widget, 1), "name: w", "name: w, finalizers: [example.com/a]", 1)
	return []waitingStep{
		{
			fmt.Sprintf(config, "1"), "get configmap a -w -o custom-columns=K:.data.k --no-headers --request-timeout=2s",
			`patch configmap a -p {"data":{"k":"2"}}`,
		},
		{fmt.Sprintf(config, "1"), "get configmaps -l app=web -w --output-watch-events -o name --request-timeout=2s", "label configmap a app=other --overwrite"},
		{finalized, "delete widget w --timeout=20s", `patch widget w --type merge -p {"metadata":{"finalizers":null}}`},
	}
}
