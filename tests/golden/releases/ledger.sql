BEGIN TRANSACTION;
CREATE TABLE ledger_account (
	name TEXT NOT NULL, 
	dataset TEXT NOT NULL, 
	unit TEXT NOT NULL, 
	unit_column TEXT, 
	adjacency TEXT NOT NULL, 
	epsilon DOUBLE NOT NULL, 
	delta DOUBLE NOT NULL, 
	renyi_order DOUBLE, 
	budget DOUBLE NOT NULL, 
	period_days INTEGER, 
	period_epsilon DOUBLE, 
	key_id TEXT NOT NULL, 
	partition_key TEXT NOT NULL, 
	opened_at TEXT NOT NULL, 
	split TEXT, 
	gaussian_budget DOUBLE, 
	rooms TEXT, 
	terms TEXT, 
	PRIMARY KEY (name), 
	UNIQUE (dataset)
);
INSERT INTO "ledger_account" VALUES('letters','letters','person','unit','add_remove',30.0,1.0e-06,2.31673624890663099051e+00,1.94885336453747441964e+01,NULL,NULL,'1239524a7369','2cc6ad6a7f92b3c53f8516f6ead079c513347b5c911865816e49b883f2af0aba','2026-11-20T12:00:00.000000Z','{"chances":0.05,"gaussian":0.35,"renyi":0.2,"repeats":0.4}',1.85684555392673829032e+01,NULL,NULL);
CREATE TABLE ledger_draw (
	release_id TEXT NOT NULL, 
	part TEXT NOT NULL, 
	number BIGINT NOT NULL, 
	token BIGINT NOT NULL, 
	body BLOB NOT NULL, 
	PRIMARY KEY (release_id, part, number)
);
CREATE TABLE ledger_entry (
	release_id TEXT NOT NULL, 
	number BIGINT NOT NULL, 
	account TEXT NOT NULL, 
	method TEXT NOT NULL, 
	state TEXT NOT NULL CHECK (state IN ('RESERVED', 'BEGUN', 'COMMITTED', 'LOST', 'VOID')), 
	event TEXT NOT NULL, 
	loss DOUBLE NOT NULL, 
	epsilon DOUBLE NOT NULL, 
	delta DOUBLE NOT NULL, 
	reserved_at TEXT NOT NULL, 
	changed_at TEXT NOT NULL, 
	scratch TEXT, 
	host TEXT, 
	nonce TEXT, 
	artifact_sha256 TEXT, 
	certificate_sha256 TEXT, 
	reason TEXT, 
	reserved_by TEXT, 
	mu_squared DOUBLE, 
	PRIMARY KEY (release_id), 
	UNIQUE (number), 
	FOREIGN KEY(account) REFERENCES ledger_account (name)
);
INSERT INTO "ledger_entry" VALUES('invisible_ink-a8dbe28443e1f30d',1,'letters','invisible_ink','COMMITTED','{"event":{"cells":2,"events":[{"count":6,"kind":"bounded_range","range":1.0119359601627698}],"kind":"disjoint"},"kind":"random_allocation","places":8,"version":1}',1.77927843814122721433e+00,4.49999887440466,1.0e-06,'2026-11-20T12:00:00.000000Z','2026-11-20T12:00:00.000000Z','/tmp/clinic/.privsyn/scratch/invisible_ink-a8dbe28443e1f30d','clinic','a36b4dd2393cb43288cfc7757117b702','574430616fb14eb3759d6d807e792a9dc580da15dfc859de476f4324e880b997','7aabd6a78c03ebb1d2d92f7cd6e092863a12baaf42600fa774d4e971d7c26639',NULL,NULL,9.82231895835677937256e-01);
INSERT INTO "ledger_entry" VALUES('private_prediction-0a319413b4833423',2,'letters','private_prediction','COMMITTED','{"cells":2,"events":[{"count":12,"events":[{"epsilon":0.25,"kind":"pure"},{"count":1,"kind":"bounded_range","range":0.25}],"kind":"rounds"}],"kind":"disjoint","version":1}',1.05551127882482909114e+00,4.16480096713266689789e+00,1.0e-06,'2026-11-20T12:00:00.000000Z','2026-11-20T12:00:00.000000Z','/tmp/clinic/.privsyn/scratch/private_prediction-0a319413b4833423','clinic','cf103a895e95b9af8a463a621891d968','17be22737e6b70b7aeaa1699997545363ae81339fcdcfc8c805a37ab7910f9e5','51fe0309f9ee27cfc7be4f25a5adc805994430e288f8079babda4e7ef9d8a185',NULL,NULL,9.50719085562427346225e-01);
INSERT INTO "ledger_entry" VALUES('private_evolution-d331f8cdd53ec1c1',3,'letters','private_evolution','COMMITTED','{"count":2,"kind":"discrete_gaussian","noise_multiplier":1.5206829131282091,"version":1}',1.00184206264820141463e+00,4.499999999775,1.0e-06,'2026-11-20T12:00:00.000000Z','2026-11-20T12:00:00.000000Z','/tmp/clinic/.privsyn/scratch/private_evolution-d331f8cdd53ec1c1','clinic','331fe7f350864971a91feb68d88ba418','3e2902c933debca7b0788b668d8e6bd4113e9f3992a56e5c749708a0821d8f68','7f2b2c5f95c459c88ee8643eec06ce2698c5271985a58f799662857aa5ec978f',NULL,NULL,8.64873645518357436756e-01);
INSERT INTO "ledger_entry" VALUES('keyphrase_seeding-0560652c7c7fa296',4,'letters','keyphrase_seeding','COMMITTED','{"events":[{"count":1,"kind":"discrete_gaussian","noise_multiplier":1.520682913129733},{"cells":2,"events":[{"events":[{"count":1,"kind":"discrete_gaussian","noise_multiplier":1.520682913129733}],"kind":"sequence"}],"kind":"disjoint"}],"kind":"sequence","version":1}',1.00184206264619324322e+00,4.49999999976989428773e+00,1.0e-06,'2026-11-20T12:00:00.000000Z','2026-11-20T12:00:00.000000Z','/tmp/clinic/.privsyn/scratch/keyphrase_seeding-0560652c7c7fa296','clinic','18a188b21337b3408bc3442533758a4d','20711faf642e5ac9feb12506361228e04d772500aba627e54939cba1d828576d','abee5e52d138cfd8b44f10110e4e00a46550ae8423ebe16cdccb1e3a67659ed3',NULL,NULL,8.64873645516623934526e-01);
INSERT INTO "ledger_entry" VALUES('dp_lora-caa1e652784bc19e',5,'letters','dp_lora','COMMITTED','{"kind":"sampled_gaussian","noise_multiplier":1.3239091855006544,"rate":0.5,"steps":3,"version":1}',6.42011381238396516835e-01,4.49999887711245349919e+00,1.0e-06,'2026-11-20T12:00:00.000000Z','2026-11-20T12:00:00.000000Z','/tmp/clinic/.privsyn/scratch/dp_lora-caa1e652784bc19e','clinic','afe694889c88ea872058528b31ea2f2f','4f9366eb12dc27197c0103f67d486cda1191730a1526ba5a66736d34e0b7412e','863c1c4dfd4f1af8d4aeda46ea579b1d83d58c43a7d4a906b22138abf29854c3',NULL,NULL,9.60057017115401700735e-01);
INSERT INTO "ledger_entry" VALUES('invisible_ink-3a597022dff0cf51',6,'letters','invisible_ink','BEGUN','{"event":{"cells":2,"events":[{"count":6,"kind":"bounded_range","range":0.4412886771288785}],"kind":"disjoint"},"kind":"random_allocation","places":8,"version":1}',3.38363435386225930301e-01,9.99999693175606330086e-01,1.0e-06,'2026-11-20T12:00:00.000000Z','2026-11-20T12:00:00.000000Z','/tmp/clinic/.privsyn/scratch/invisible_ink-3a597022dff0cf51','clinic','36d299830dbd37ca596bdf588ea0e46d',NULL,NULL,NULL,NULL,7.06259506367285239125e-02);
CREATE TABLE ledger_head (
	id INTEGER NOT NULL CHECK (id = 1), 
	seq BIGINT NOT NULL, 
	hash TEXT NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "ledger_head" VALUES(1,18,'e672db49f717b86d53071b2b0a3a18ea57edf62c6da4ad772fb1c7f685638793');
CREATE TABLE ledger_history (
	seq BIGINT NOT NULL, 
	at TEXT NOT NULL, 
	account TEXT NOT NULL, 
	release_id TEXT, 
	change TEXT NOT NULL, 
	body TEXT NOT NULL, 
	previous TEXT NOT NULL, 
	hash TEXT NOT NULL, 
	PRIMARY KEY (seq)
);
INSERT INTO "ledger_history" VALUES(1,'2026-11-20T12:00:00.000000Z','letters',NULL,'OPENED','{"adjacency":"add_remove","budget":19.488533645374744,"dataset":"letters","delta":1e-06,"epsilon":30.0,"gaussian_budget":18.568455539267383,"key_id":"1239524a7369","key_sha256":"a518ab12f72b9b072735ed608b129301f63ffd345bc4851249e6cde603184443","period_days":null,"period_epsilon":null,"renyi_order":2.316736248906631,"rooms":null,"salt":"77c830a41bd9cd298cefba4d4edeb81e","split":"{\"chances\":0.05,\"gaussian\":0.35,\"renyi\":0.2,\"repeats\":0.4}","unit":"person","unit_column":"unit"}','0000000000000000000000000000000000000000000000000000000000000000','1f5533af945c5372930d723919270b2359bf0401a2aabf7846e5d039c7115605');
INSERT INTO "ledger_history" VALUES(2,'2026-11-20T12:00:00.000000Z','letters','invisible_ink-a8dbe28443e1f30d','RESERVED','{"delta":1e-06,"epsilon":4.49999887440466,"event":{"event":{"cells":2,"events":[{"count":6,"kind":"bounded_range","range":1.0119359601627698}],"kind":"disjoint"},"kind":"random_allocation","places":8,"version":1},"loss":1.7792784381412272,"method":"invisible_ink","mu_squared":0.9822318958356779,"number":1,"salt":"9f4d0cdac58c0cfafd4e0a212430faa8","settings_digest":"863597831e56d8e9f3377a74927cd71519b534bcb36c12c2267518be2ad5daff"}','1f5533af945c5372930d723919270b2359bf0401a2aabf7846e5d039c7115605','4b833ee6980bfeb22aee3fc3bdaa8ccc4c1974676d9c16f02d430236bbe90c07');
INSERT INTO "ledger_history" VALUES(3,'2026-11-20T12:00:00.000000Z','letters','invisible_ink-a8dbe28443e1f30d','BEGUN','{"host":"clinic","nonce":"a36b4dd2393cb43288cfc7757117b702","salt":"4a428185a836db09850b98c4a584831d","scratch":"/tmp/clinic/.privsyn/scratch/invisible_ink-a8dbe28443e1f30d"}','4b833ee6980bfeb22aee3fc3bdaa8ccc4c1974676d9c16f02d430236bbe90c07','3f5098c28f3622d71a22feeda9941bb07ecaeeec535bde4754d147be74967e13');
INSERT INTO "ledger_history" VALUES(4,'2026-11-20T12:00:00.000000Z','letters','invisible_ink-a8dbe28443e1f30d','COMMITTED','{"artifact_sha256":"574430616fb14eb3759d6d807e792a9dc580da15dfc859de476f4324e880b997","certificate_sha256":"7aabd6a78c03ebb1d2d92f7cd6e092863a12baaf42600fa774d4e971d7c26639","salt":"1214a0f25a030c993fffdd337d97db3d"}','3f5098c28f3622d71a22feeda9941bb07ecaeeec535bde4754d147be74967e13','d05a60e512cb093689325a94849bae703b632f6ffbc351eb12577fbdd6d464a9');
INSERT INTO "ledger_history" VALUES(5,'2026-11-20T12:00:00.000000Z','letters','private_prediction-0a319413b4833423','RESERVED','{"delta":1e-06,"epsilon":4.164800967132667,"event":{"cells":2,"events":[{"count":12,"events":[{"epsilon":0.25,"kind":"pure"},{"count":1,"kind":"bounded_range","range":0.25}],"kind":"rounds"}],"kind":"disjoint","version":1},"loss":1.055511278824829,"method":"private_prediction","mu_squared":0.9507190855624273,"number":2,"salt":"b87da6d6414577a1d3f7c5787f5ef4a8","settings_digest":"168efcf8c3b8e45daddac8e727d27cebe41dd86b93bef77ad6843a2a7d7349f3"}','d05a60e512cb093689325a94849bae703b632f6ffbc351eb12577fbdd6d464a9','9ebf08e149f84ffa7671b9847acfab082afd3d15dfd8ecdb4eeb92274fae9d50');
INSERT INTO "ledger_history" VALUES(6,'2026-11-20T12:00:00.000000Z','letters','private_prediction-0a319413b4833423','BEGUN','{"host":"clinic","nonce":"cf103a895e95b9af8a463a621891d968","salt":"bf1c135a5afd8534ba5120e3bbc0ddd5","scratch":"/tmp/clinic/.privsyn/scratch/private_prediction-0a319413b4833423"}','9ebf08e149f84ffa7671b9847acfab082afd3d15dfd8ecdb4eeb92274fae9d50','83c7d59403cac25f82c18966683fcada2b465f494efba280c7c9636772fff69b');
INSERT INTO "ledger_history" VALUES(7,'2026-11-20T12:00:00.000000Z','letters','private_prediction-0a319413b4833423','COMMITTED','{"artifact_sha256":"17be22737e6b70b7aeaa1699997545363ae81339fcdcfc8c805a37ab7910f9e5","certificate_sha256":"51fe0309f9ee27cfc7be4f25a5adc805994430e288f8079babda4e7ef9d8a185","salt":"e2c0038b9deca3ed81c752f498470cf1"}','83c7d59403cac25f82c18966683fcada2b465f494efba280c7c9636772fff69b','6d35ef689ceca7089e3a2ca698a6c625453fa8dccd19442bdc373392bf7b67ae');
INSERT INTO "ledger_history" VALUES(8,'2026-11-20T12:00:00.000000Z','letters','private_evolution-d331f8cdd53ec1c1','RESERVED','{"delta":1e-06,"epsilon":4.499999999775,"event":{"count":2,"kind":"discrete_gaussian","noise_multiplier":1.5206829131282091,"version":1},"loss":1.0018420626482014,"method":"private_evolution","mu_squared":0.8648736455183574,"number":3,"salt":"4e61a4b9c247435fdbde8b411323a6a4","settings_digest":"eb5f8b2a082507319557b29d10319791c94a30314e60379580d22de9ce54f4a5"}','6d35ef689ceca7089e3a2ca698a6c625453fa8dccd19442bdc373392bf7b67ae','ea018e3c43173cf71a2f6d642f99b1958ac903236362fc4984e86865161a7a19');
INSERT INTO "ledger_history" VALUES(9,'2026-11-20T12:00:00.000000Z','letters','private_evolution-d331f8cdd53ec1c1','BEGUN','{"host":"clinic","nonce":"331fe7f350864971a91feb68d88ba418","salt":"812a2d2d44ebd8ddd7e415c55f793449","scratch":"/tmp/clinic/.privsyn/scratch/private_evolution-d331f8cdd53ec1c1"}','ea018e3c43173cf71a2f6d642f99b1958ac903236362fc4984e86865161a7a19','43b85c9f2a487c8a5a7115a89e9713cf7b5b35b92caad9c7b1a28da5df909219');
INSERT INTO "ledger_history" VALUES(10,'2026-11-20T12:00:00.000000Z','letters','private_evolution-d331f8cdd53ec1c1','COMMITTED','{"artifact_sha256":"3e2902c933debca7b0788b668d8e6bd4113e9f3992a56e5c749708a0821d8f68","certificate_sha256":"7f2b2c5f95c459c88ee8643eec06ce2698c5271985a58f799662857aa5ec978f","salt":"134698d5c0c0e7f5cc8b2a533182d1bd"}','43b85c9f2a487c8a5a7115a89e9713cf7b5b35b92caad9c7b1a28da5df909219','c44276e0b449fb7eef4b78df713a00588892381693b03754bd58d39a1638c54c');
INSERT INTO "ledger_history" VALUES(11,'2026-11-20T12:00:00.000000Z','letters','keyphrase_seeding-0560652c7c7fa296','RESERVED','{"delta":1e-06,"epsilon":4.499999999769894,"event":{"events":[{"count":1,"kind":"discrete_gaussian","noise_multiplier":1.520682913129733},{"cells":2,"events":[{"events":[{"count":1,"kind":"discrete_gaussian","noise_multiplier":1.520682913129733}],"kind":"sequence"}],"kind":"disjoint"}],"kind":"sequence","version":1},"loss":1.0018420626461932,"method":"keyphrase_seeding","mu_squared":0.8648736455166239,"number":4,"salt":"f3813d0c9e8ecf998ac20a08845c5b17","settings_digest":"438ba52ae60837c84c7bc9483268dccd360b2c584ea243b189493251ef0ded1c"}','c44276e0b449fb7eef4b78df713a00588892381693b03754bd58d39a1638c54c','93b6064641875ccb0d9bb3fa8f7495371ed5d9acefea8b932490b518d0dfc081');
INSERT INTO "ledger_history" VALUES(12,'2026-11-20T12:00:00.000000Z','letters','keyphrase_seeding-0560652c7c7fa296','BEGUN','{"host":"clinic","nonce":"18a188b21337b3408bc3442533758a4d","salt":"1010e7cdd0d99f405054494c370effdf","scratch":"/tmp/clinic/.privsyn/scratch/keyphrase_seeding-0560652c7c7fa296"}','93b6064641875ccb0d9bb3fa8f7495371ed5d9acefea8b932490b518d0dfc081','17e55a1703500e5815bb6d5ba78e64884c636b403a7afdd636b3afb33171deae');
INSERT INTO "ledger_history" VALUES(13,'2026-11-20T12:00:00.000000Z','letters','keyphrase_seeding-0560652c7c7fa296','COMMITTED','{"artifact_sha256":"20711faf642e5ac9feb12506361228e04d772500aba627e54939cba1d828576d","certificate_sha256":"abee5e52d138cfd8b44f10110e4e00a46550ae8423ebe16cdccb1e3a67659ed3","salt":"afcd1b162682f56346f42e2aeebbce9e"}','17e55a1703500e5815bb6d5ba78e64884c636b403a7afdd636b3afb33171deae','11308e3bbf74d9967e09ade6d6fc52bdffe4d1ae55ab033991ae63ab12b82b98');
INSERT INTO "ledger_history" VALUES(14,'2026-11-20T12:00:00.000000Z','letters','dp_lora-caa1e652784bc19e','RESERVED','{"delta":1e-06,"epsilon":4.4999988771124535,"event":{"kind":"sampled_gaussian","noise_multiplier":1.3239091855006544,"rate":0.5,"steps":3,"version":1},"loss":0.6420113812383965,"method":"dp_lora","mu_squared":0.9600570171154017,"number":5,"salt":"af03b48ff7c39b8b59535ca9edd9b627","settings_digest":"0fbfdfb3c08cbe1c293017f7fb208bbf2c63068dd32e0c914d00d8e2cee8ecb4"}','11308e3bbf74d9967e09ade6d6fc52bdffe4d1ae55ab033991ae63ab12b82b98','02dfdf6e3c0aca7d9130b9e5b7ea4b50a8116d70acd7cfa8224bdbc157f17ee7');
INSERT INTO "ledger_history" VALUES(15,'2026-11-20T12:00:00.000000Z','letters','dp_lora-caa1e652784bc19e','BEGUN','{"host":"clinic","nonce":"afe694889c88ea872058528b31ea2f2f","salt":"86a6988422a27819706517df5486245e","scratch":"/tmp/clinic/.privsyn/scratch/dp_lora-caa1e652784bc19e"}','02dfdf6e3c0aca7d9130b9e5b7ea4b50a8116d70acd7cfa8224bdbc157f17ee7','6cdb46d44ff83dfea0c8d98252e8596607bd71101fb46f84aa2de9f4e0e02ae0');
INSERT INTO "ledger_history" VALUES(16,'2026-11-20T12:00:00.000000Z','letters','dp_lora-caa1e652784bc19e','COMMITTED','{"artifact_sha256":"4f9366eb12dc27197c0103f67d486cda1191730a1526ba5a66736d34e0b7412e","certificate_sha256":"863c1c4dfd4f1af8d4aeda46ea579b1d83d58c43a7d4a906b22138abf29854c3","salt":"88b8b5ebf38e9354c373a748e33a8cb4"}','6cdb46d44ff83dfea0c8d98252e8596607bd71101fb46f84aa2de9f4e0e02ae0','5001f66b230826e3f65b97d1e6089936485d6d7ffb68c5c1d42fc6db23f1cde5');
INSERT INTO "ledger_history" VALUES(17,'2026-11-20T12:00:00.000000Z','letters','invisible_ink-3a597022dff0cf51','RESERVED','{"delta":1e-06,"epsilon":0.9999996931756063,"event":{"event":{"cells":2,"events":[{"count":6,"kind":"bounded_range","range":0.4412886771288785}],"kind":"disjoint"},"kind":"random_allocation","places":8,"version":1},"loss":0.33836343538622593,"method":"invisible_ink","mu_squared":0.07062595063672852,"number":6,"salt":"3d590a0a1c1b84e99edd3264481cee82","settings_digest":"bd1c3416f4424a7329211d68fba0ad4848daa5f3ef8cf2f26e0835103b13c31e"}','5001f66b230826e3f65b97d1e6089936485d6d7ffb68c5c1d42fc6db23f1cde5','fb97fbbbcf06d2c731bf49e149d9b02a2b861a1e3c7387390323996ce85bd608');
INSERT INTO "ledger_history" VALUES(18,'2026-11-20T12:00:00.000000Z','letters','invisible_ink-3a597022dff0cf51','BEGUN','{"host":"clinic","nonce":"36d299830dbd37ca596bdf588ea0e46d","salt":"09fb9a08609ca046a759c35fc5ce0122","scratch":"/tmp/clinic/.privsyn/scratch/invisible_ink-3a597022dff0cf51"}','fb97fbbbcf06d2c731bf49e149d9b02a2b861a1e3c7387390323996ce85bd608','e672db49f717b86d53071b2b0a3a18ea57edf62c6da4ad772fb1c7f685638793');
CREATE TABLE ledger_lease (
	release_id TEXT NOT NULL, 
	part TEXT NOT NULL, 
	token BIGINT NOT NULL, 
	machine TEXT, 
	host TEXT, 
	pid BIGINT, 
	started BIGINT, 
	expires_at TEXT NOT NULL, 
	steps BIGINT NOT NULL, 
	PRIMARY KEY (release_id, part)
);
INSERT INTO "ledger_lease" VALUES('invisible_ink-a8dbe28443e1f30d','partition',1,NULL,'clinic',26744,646589,'2026-11-20T12:01:00.000000Z',0);
INSERT INTO "ledger_lease" VALUES('invisible_ink-a8dbe28443e1f30d','shard-0',1,NULL,'clinic',26744,646589,'2026-11-20T12:01:00.000000Z',48);
INSERT INTO "ledger_lease" VALUES('invisible_ink-a8dbe28443e1f30d','shard-1',1,NULL,'clinic',26744,646589,'2026-11-20T12:01:00.000000Z',48);
INSERT INTO "ledger_lease" VALUES('invisible_ink-a8dbe28443e1f30d','certificate',1,NULL,'clinic',26744,646589,'2026-11-20T12:01:00.000000Z',0);
INSERT INTO "ledger_lease" VALUES('private_prediction-0a319413b4833423','partition',1,NULL,'clinic',26744,646589,'2026-11-20T12:01:00.000000Z',0);
INSERT INTO "ledger_lease" VALUES('private_prediction-0a319413b4833423','shard-0',1,NULL,'clinic',26744,646589,'2026-11-20T12:01:00.000000Z',35);
INSERT INTO "ledger_lease" VALUES('private_prediction-0a319413b4833423','shard-1',1,NULL,'clinic',26744,646589,'2026-11-20T12:01:00.000000Z',35);
INSERT INTO "ledger_lease" VALUES('private_prediction-0a319413b4833423','certificate',1,NULL,'clinic',26744,646589,'2026-11-20T12:01:00.000000Z',0);
INSERT INTO "ledger_lease" VALUES('private_evolution-d331f8cdd53ec1c1','partition',1,NULL,'clinic',26744,646589,'2026-11-20T12:01:00.000000Z',0);
INSERT INTO "ledger_lease" VALUES('private_evolution-d331f8cdd53ec1c1','shard-0',1,NULL,'clinic',26744,646589,'2026-11-20T12:01:00.000000Z',16);
INSERT INTO "ledger_lease" VALUES('private_evolution-d331f8cdd53ec1c1','certificate',1,NULL,'clinic',26744,646589,'2026-11-20T12:01:00.000000Z',0);
INSERT INTO "ledger_lease" VALUES('keyphrase_seeding-0560652c7c7fa296','partition',1,NULL,'clinic',26744,646589,'2026-11-20T12:01:00.000000Z',0);
INSERT INTO "ledger_lease" VALUES('keyphrase_seeding-0560652c7c7fa296','shard-0',1,NULL,'clinic',26744,646589,'2026-11-20T12:01:00.000000Z',6);
INSERT INTO "ledger_lease" VALUES('keyphrase_seeding-0560652c7c7fa296','certificate',1,NULL,'clinic',26744,646589,'2026-11-20T12:01:00.000000Z',0);
INSERT INTO "ledger_lease" VALUES('dp_lora-caa1e652784bc19e','partition',1,NULL,'clinic',26744,646589,'2026-11-20T12:01:00.000000Z',0);
INSERT INTO "ledger_lease" VALUES('dp_lora-caa1e652784bc19e','shard-train',1,NULL,'clinic',26744,646589,'2026-11-20T12:01:00.000000Z',1);
INSERT INTO "ledger_lease" VALUES('dp_lora-caa1e652784bc19e','shard-0',1,NULL,'clinic',26744,646589,'2026-11-20T12:01:00.000000Z',0);
INSERT INTO "ledger_lease" VALUES('dp_lora-caa1e652784bc19e','certificate',1,NULL,'clinic',26744,646589,'2026-11-20T12:01:00.000000Z',0);
INSERT INTO "ledger_lease" VALUES('invisible_ink-3a597022dff0cf51','partition',1,NULL,'clinic',26744,646589,'2026-11-20T12:01:00.000000Z',0);
INSERT INTO "ledger_lease" VALUES('invisible_ink-3a597022dff0cf51','shard-0',1,NULL,'clinic',26744,646589,'2026-11-20T12:01:00.000000Z',48);
CREATE TABLE ledger_migration (
	version INTEGER NOT NULL, 
	applied_at TEXT NOT NULL, 
	PRIMARY KEY (version)
);
INSERT INTO "ledger_migration" VALUES(11,'2026-11-27T20:52:27.477471Z');
CREATE TABLE ledger_refusal (
	number BIGINT NOT NULL, 
	at TEXT NOT NULL, 
	account TEXT NOT NULL, 
	release_id TEXT, 
	method TEXT, 
	epsilon DOUBLE, 
	delta DOUBLE, 
	error TEXT NOT NULL, 
	message TEXT NOT NULL, 
	refused_by TEXT, 
	PRIMARY KEY (number)
);
CREATE TABLE ledger_secret (
	name TEXT NOT NULL, 
	value TEXT NOT NULL, 
	PRIMARY KEY (name)
);
INSERT INTO "ledger_secret" VALUES('source','6921faaf0af3d5881544fe8ad65963fd515ff90ffe2e1aaccc2ae80ec1254098');
CREATE TABLE ledger_source (
	release_id TEXT NOT NULL, 
	account TEXT NOT NULL, 
	version TEXT NOT NULL, 
	fingerprint TEXT NOT NULL, 
	noted_at TEXT NOT NULL, 
	PRIMARY KEY (release_id)
);
INSERT INTO "ledger_source" VALUES('invisible_ink-a8dbe28443e1f30d','letters','v1','f63c2d04c1c0d53e8cdb53d5d26813f1831b2240','2026-11-20T12:00:00.000000Z');
INSERT INTO "ledger_source" VALUES('private_prediction-0a319413b4833423','letters','v1','f63c2d04c1c0d53e8cdb53d5d26813f1831b2240','2026-11-20T12:00:00.000000Z');
INSERT INTO "ledger_source" VALUES('private_evolution-d331f8cdd53ec1c1','letters','v1','f63c2d04c1c0d53e8cdb53d5d26813f1831b2240','2026-11-20T12:00:00.000000Z');
INSERT INTO "ledger_source" VALUES('keyphrase_seeding-0560652c7c7fa296','letters','v1','f63c2d04c1c0d53e8cdb53d5d26813f1831b2240','2026-11-20T12:00:00.000000Z');
INSERT INTO "ledger_source" VALUES('dp_lora-caa1e652784bc19e','letters','v1','f63c2d04c1c0d53e8cdb53d5d26813f1831b2240','2026-11-20T12:00:00.000000Z');
INSERT INTO "ledger_source" VALUES('invisible_ink-3a597022dff0cf51','letters','v1','f63c2d04c1c0d53e8cdb53d5d26813f1831b2240','2026-11-20T12:00:00.000000Z');
CREATE TABLE ledger_vault (
	release_id TEXT NOT NULL, 
	key_id TEXT NOT NULL, 
	wrapped_key BLOB NOT NULL, 
	nonce TEXT NOT NULL, 
	shards INTEGER NOT NULL, 
	made_at TEXT NOT NULL, 
	PRIMARY KEY (release_id)
);
CREATE INDEX ix_ledger_history_release_id ON ledger_history (release_id);
CREATE INDEX ix_ledger_source_fingerprint ON ledger_source (fingerprint);
CREATE INDEX ix_ledger_entry_account ON ledger_entry (account);
COMMIT;
