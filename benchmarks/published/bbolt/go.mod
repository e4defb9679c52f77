module bolt

go 1.19

require go.etcd.io/bbolt v1.3.6

require golang.org/x/sys v0.0.0-20200923182605-d9f96fdee20d // indirect
