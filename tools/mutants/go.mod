module github.com/evenkeel-go/evenkeel/tools/mutants

go 1.26.0
