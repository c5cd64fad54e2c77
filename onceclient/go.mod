module github.com/onceguard/onceguard/onceclient

go 1.25.0
