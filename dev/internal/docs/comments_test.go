package docs

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// others lists the code blocks in comments that are not Go code, with descriptions. All other blocks are in a test.
func others() map[string]string {
	const (
		shell   = "commands"
		output  = "output"
		drawing = "a drawing"
		table   = "a table"
	)
	return map[string]string{
		"dev/bench/main.go: go run . -n 20000 -rounds 3     a short run":                                                                               shell,
		"dev/bench/operator/main.go: go run ./operator                        1,000 and 5,000 WebApps, one round":                                      shell,
		"dev/bench/operator/main.go: RATIO <figure> evenkeel/controller-runtime <value> <number of WebApps>":                                           output,
		"dev/bench/main.go: RATIO <metric> evenkeel/<peer> <value>":                                                                                    output,
		"client/conflict.go: conflict with \"kubectl-edit\" with subresource \"status\" using apps/v1 at 2026-01-02T15:04:05Z":                         output,
		"localcluster/cmd/localcluster/main.go: go run ./localcluster/cmd/localcluster --controllers --nodes 2":                                        shell,
		"localcluster/cmd/localcluster/main.go: go build -o localcluster ./localcluster/cmd/localcluster && exec ./localcluster":                       shell,
		"examples/podterminator/main.go: kubectl apply -f config/crd.yaml -f config/rbac.yaml":                                                         shell,
		"examples/webapp/main.go: kubectl apply -f api/v1/webapp.example.com_webapps.yaml":                                                             shell,
		"examples/webapp/main.go: go run . manifests --image=IMAGE --namespace=webapp-operator -- --webhook-listen=:9443 | kubectl apply -f -":         shell,
		"dev/internal/docs/doc.go: <!-- code: examples/demo/main.go -->       the block is that file":                                                  table,
		"dev/internal/docs/follow/doc.go: <!-- file: main.go -->              the block, in any language, is saved as that file. The path starts from": table,
		"dev/internal/docs/loc.go: TITLE = PATH PATH ...; TITLE = PATH ...":                                                                            "a form",
		"localcluster/cluster.go: running  the API server answers":                                                                                     table,
		"localcluster/doc.go: go run github.com/evenkeel-go/evenkeel/localcluster/cmd/localcluster version":                                            shell,
		"localcluster/server/control.go: -> {\"id\":1,\"command\":\"kill\"}     SIGKILL the API server (and its etcd)":                                 "a protocol",
		"localcluster/server/folder.go: cluster.json         settings":                                                                                 table,
		"owned/plan.go: WebApp shop/web: create 1, update 1, delete 1, unchanged 3":                                                                    output,
		"internal/store/record.go: flags            1 byte, see below":                                                                                 table,
		"tracing/otel/doc.go: run pods                      from the first event to the end of the run":                                                drawing,
		"tracing/otel/doc.go: run        evenkeel.controller, evenkeel.key, k8s.namespace.name, evenkeel.run.id,":                                      table,
		"internal/wire/doc.go: response ── EventReader, ReadList ──> Object ──> (kept as bytes) ── Read ──> Object ── Decoder ──> T":                   drawing,
	}
}

// TestCodeInCommentsIsCompiled finds the code blocks of all doc comments in the tests beside them.
func TestCodeInCommentsIsCompiled(t *testing.T) {
	t.Parallel()
	problems, err := CheckComments(repository, others())
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range problems {
		t.Error(problem)
	}
}

const commented = `// Package shop sells.
//
//	opened, err := shop.Open(ctx,
//		"books")
//	...
//	defer opened.Close()
//
// Then:
//
//	go run ./shop
package shop

type Shop struct {
	// Name is shown outside.
	//
	//	s.Name = "Books"
	Name string
}

func Open() {
	// In a body:
	//
	//	not a doc comment
}
`

func TestCheckComments(t *testing.T) {
	t.Parallel()
	const test = `package shop_test

func ExampleOpen() {
	// the first one
	opened, err := shop.Open(ctx, "books")
	if err != nil {
		panic(err)
	}
	defer opened.Close() // in the end
	s.Name = "Books"
}
`
	open, name := `"opened, err := shop.Open(ctx,"`, `"s.Name = \"Books\""`
	command := map[string]string{"shop/shop.go: go run ./shop": "commands"}
	for title, tc := range map[string]struct {
		test   string
		others map[string]string
		want   []string
	}{
		"all is there":             {test, command, nil},
		"other space and comments": {strings.Replace(test, `, "books"`, ", // those\n\"books\"", 1), command, nil},
		"no test":                  {"", command, []string{open, name}},
		"another value":            {strings.Replace(test, "Books", "books", 1), command, []string{name}},
		"in another order":         {strings.Replace(strings.Replace(test, "defer opened.Close()", "", 1), "opened, err", "defer opened.Close()\nopened, err", 1), command, []string{open}},
		"in two functions":         {strings.Replace(test, "\tdefer", "}\nfunc other() {\ndefer", 1), command, []string{open}},
		"in a comment only":        {strings.Replace(test, "s.Name =", "// s.Name =", 1), command, []string{name}},
		"in a string only":         {strings.Replace(test, `s.Name = "Books"`, "_ = `s.Name = \"Books\"`", 1), command, []string{name}},
		"in no build":              {"//go:build ignore\n\n" + test, command, []string{open, name}},
		"commands in silence":      {test, nil, []string{`"go run ./shop"`}},
		"code as something else":   {test, map[string]string{"shop/shop.go: go run ./shop": "commands", "shop/shop.go: s.Name = \"Books\"": "output"}, []string{"is said to be output, and is Go code"}},
		"what has gone":            {test, map[string]string{"shop/shop.go: go run ./shop": "commands", "shop/shop.go: ls": "commands"}, []string{"no such block"}},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			files := map[string]string{"shop/shop.go": commented, "shop/testdata/x.go": commented, "shop/shop_test.go": tc.test}
			if tc.test == "" {
				files["shop/shop_test.go"] = "package shop_test\n"
			}
			problems, err := CheckComments(repositoryWith(t, files), tc.others)
			if err != nil {
				t.Fatal(err)
			}
			if len(problems) != len(tc.want) {
				t.Fatalf("want %d problems, got %q", len(tc.want), problems)
			}
			for i, want := range tc.want {
				if !strings.Contains(problems[i], want) {
					t.Errorf("want a problem about %s, got %s", want, problems[i])
				}
			}
		})
	}
}

func TestCommentBlocks(t *testing.T) {
	t.Parallel()
	blocks, err := CommentBlocks(repositoryWith(t, map[string]string{"shop/shop.go": commented}))
	if err != nil {
		t.Fatal(err)
	}
	want := []CommentBlock{
		{File: "shop/shop.go", Line: 1, Text: "opened, err := shop.Open(ctx,\n\t\"books\")\n...\ndefer opened.Close()\n"},
		{File: "shop/shop.go", Line: 1, Text: "go run ./shop\n"},
		{File: "shop/shop.go", Line: 14, Text: "s.Name = \"Books\"\n"},
	}
	if diff := cmp.Diff(want, blocks); diff != "" {
		t.Errorf("blocks (-want +got):\n%s", diff)
	}
}
